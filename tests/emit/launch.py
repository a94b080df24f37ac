"""Runs a built library on patterns, with ctypes, and counts wrong elements."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_double, c_int, c_longlong, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.plan import Plan
from hccc.runtime.layout import shape_of
from hccc.runtime.measure import patterns


class Rank(Structure):
    """hccc_rank."""

    _fields_ = [(n, c_void_p) for n in ("input", "output", "scratch", "flags")]


class CallArguments(Structure):
    """hccc_call."""

    _fields_ = [
        ("count", c_longlong), ("micro_batch_bytes", c_longlong), ("timeout_s", c_double),
        ("in_place", c_int), ("window", c_int), ("workers", c_int), ("first_rank", c_int),
        ("n_local", c_int),
    ]  # fmt: skip


class Fault(Structure):
    """hccc_fault."""

    _fields_ = [
        ("claimed", c_uint), ("rank", c_int), ("thread_block", c_int), ("lane", c_int),
        ("primitive", c_int), ("micro_batch", c_uint), ("flag", c_int), ("want", c_uint),
        ("have", c_uint), ("kind", c_int),
    ]  # fmt: skip


def aligned(n_bytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes on a 128-byte boundary."""
    raw = np.zeros(n_bytes + 128, np.uint8)
    start = -raw.ctypes.data % 128
    return raw[start : start + n_bytes]


class World:
    """All ranks of a plan in this process; flags live from launch to launch."""

    def __init__(self, library: Path, plan: Plan) -> None:
        self.plan, self.shape = plan, shape_of(plan)
        self.entry = getattr(ctypes.CDLL(str(library)), f"{plan.name}_cpu")
        self.entry.argtypes = [
            POINTER(Rank), POINTER(CallArguments), ctypes.c_char_p, ctypes.c_char_p, POINTER(Fault),
        ]  # fmt: skip
        self.flags = [aligned(self.shape.flag_bytes) for _ in range(plan.n_ranks)]

    def wrong(self, p: patterns.Pattern, *, in_place: bool = False, **options: Any) -> int:
        """Runs `p` once and returns how many elements of all ranks are wrong."""
        c, size = self.plan.collective, p.numpy.itemsize
        scratch = self.shape.scratch_bytes(p.count, size, options.get("micro_batch_bytes", 0))
        ranks, keep = (Rank * c.n_ranks)(), []
        for r in range(c.n_ranks):
            send, receive = self._buffers(p, r, in_place)
            keep.append((send, receive, aligned(scratch)))
            arrays = (*keep[-1], self.flags[r])
            ranks[r] = Rank(*(a.ctypes.data for a in arrays))
        call = CallArguments(
            count=p.count, timeout_s=20, in_place=in_place, n_local=c.n_ranks, **options
        )
        fault = Fault()
        dtype, op = p.dtype.encode(), p.op.encode() if c.reduces else None
        status = self.entry(ranks, byref(call), dtype, op, byref(fault))
        assert status == 0, {n: getattr(fault, n) for n, *_ in Fault._fields_} | {"is": status}
        want = patterns.expected(p)
        return sum(patterns.wrong(keep[r][1], want.at(r)) for r in range(c.n_ranks))

    def _buffers(
        self, p: patterns.Pattern, rank: int, in_place: bool
    ) -> tuple[patterns.Array, patterns.Array]:
        """Send and receive buffer; in place, views of one array where NCCL has them."""
        c, n = self.plan.collective, p.count
        sends, receives = c.input_blocks(rank), c.output_blocks(rank)
        send = aligned(sends * n * p.numpy.itemsize).view(p.numpy)
        receive = aligned(receives * n * p.numpy.itemsize).view(p.numpy)
        patterns.poison(receive)
        if in_place and sends and receives:
            shift = c.alias_offset(rank) // c.chunks_per_block * n
            if sends > receives:
                receive = send[-shift : -shift + receives * n]
            else:
                send = receive[shift : shift + sends * n]
        send[...] = patterns.inputs(p, rank)
        return send, receive
