"""Runs a built library on patterns, with ctypes, and counts wrong elements."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, addressof, byref, c_char_p, c_void_p
from pathlib import Path
from typing import Any

from hccc.ir.plan import Plan
from hccc.runtime.abi import (
    CallRecord,
    CommRecord,
    FaultRecord,
    LocalRecord,
    RankRecord,
    all_memory,
)
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.layout import DTYPES, shape_of
from hccc.runtime.measure import patterns


class PlanRanks:
    """All ranks of a plan in this process; flags live from launch to launch."""

    def __init__(self, library: Path, plan: Plan, target: str = "cpu") -> None:
        self.plan, self.shape = plan, shape_of(plan)
        self.entry = getattr(ctypes.CDLL(str(library)), f"{plan.name}_{target}")
        self.stream = () if target == "cpu" else (None,)
        types = [POINTER(CommRecord), POINTER(CallRecord), c_char_p, c_char_p]
        self.entry.argtypes = [*types, *(c_void_p for _ in self.stream)]
        self.flags = [aligned_zeros(self.shape.flag_bytes) for _ in range(plan.n_ranks)]
        self.fault = FaultRecord()

    def wrong(
        self, p: patterns.Pattern, *, in_place: bool = False, offset: int = 0, **options: Any
    ) -> int:
        """Runs `p` once, in buffers `offset` elements past an aligned address, and returns how many
        elements of all ranks are wrong."""
        c = self.plan.collective
        buffers = [self._buffers(p, r, in_place, offset) for r in range(c.n_ranks)]
        call = CallRecord.of(count=p.count, timeout_s=20, in_place=in_place, **options)
        status = self.launch(buffers, call, p.dtype, p.op if c.reduces else None)
        fields = (name for name, *_ in FaultRecord._fields_)
        assert status == 0, {n: getattr(self.fault, n) for n in fields} | {"is": status}
        want = patterns.expected(p)
        return sum(patterns.wrong(buffers[r][1], want.at(r)) for r in range(c.n_ranks))

    def launch(
        self,
        buffers: Sequence[tuple[patterns.Array, patterns.Array]],
        call: CallRecord,
        dtype: str,
        op: str | None,
    ) -> int:
        """Launches all ranks on their send and receive buffers; the status."""
        n = self.shape.ranks
        size = DTYPES[dtype].itemsize
        need = self.shape.scratch_bytes(call.count, size, call.micro_batch_bytes)
        scratch = [aligned_zeros(need) for _ in range(n)]
        window = all_memory()
        table = zip(self.flags, scratch, strict=True)
        ranks = (RankRecord * n)(
            *[
                RankRecord(flags.ctypes.data, s.ctypes.data, addressof(window), 1, 0)
                for flags, s in table
            ]
        )
        local = (LocalRecord * n)(
            *[LocalRecord(a.ctypes.data, b.ctypes.data, None) for a, b in buffers]
        )
        call.local, call.n_local = addressof(local), n
        comm = CommRecord.of(n, addressof(ranks), addressof(self.fault))
        words = (dtype.encode(), op and op.encode(), *self.stream)
        return int(self.entry(byref(comm), byref(call), *words))

    def _buffers(
        self, p: patterns.Pattern, rank: int, in_place: bool, offset: int
    ) -> tuple[patterns.Array, patterns.Array]:
        """Makes the send and receive buffer; in place, views of one array where NCCL has them."""
        c, n = self.plan.collective, p.count
        sends, receives = c.input_blocks(rank), c.output_blocks(rank)
        size = p.numpy.itemsize
        send = aligned_zeros((offset + sends * n) * size).view(p.numpy)[offset:]
        receive = aligned_zeros((offset + receives * n) * size).view(p.numpy)[offset:]
        patterns.poison(receive)
        if in_place and sends and receives:
            shift = c.alias_offset(rank) // c.chunks_per_block * n
            if sends > receives:
                receive = send[-shift : -shift + receives * n]
            else:
                send = receive[shift : shift + sends * n]
        send[...] = patterns.inputs(p, rank)
        return send, receive
