"""execution_plan: Plan → MSCCL++ JSON execution plan, as mscclpp 0.9.0 loads it (msccl-formats §7).

The executor can express direct plans whose ranks reach each other's memory, of collectives that
give every rank both buffers, reducing with sum. Channels become instances, as in MSCCL XML: part k
of slot c is index c·K + k, in thread blocks, channels and semaphores of its own. Limits are those
of src/core/include/execution_common.hpp; the loader checks one of them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hccc.base.diagnostics import fail
from hccc.emit.mscclpp.operations import Fence, Location, Move, MscclppBlock, Op, Sync, operations
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan

MAX_OPS = 64  # of a thread block; MAX_OPERATION, checked by the executor
MAX_CHANNELS = 16  # memory channels of a thread block, and remote buffers; MAX_CHANNEL
COLLECTIVES = {
    OpType.ALLREDUCE: "allreduce",
    OpType.ALLGATHER: "allgather",
    OpType.REDUCESCATTER: "reducescatter",
    OpType.ALLTOALL: "alltoall",
    OpType.SENDRECV: "sendrecv",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def dumps(
    plan: Plan, in_place: bool, *, op: str = "sum", domain: int | None = None, threads: int = 1024
) -> str:
    """Writes `plan` as an execution plan for calls in or out of place.

    op: the reduction it is wanted for; domain: how many consecutive ranks reach each other's
    memory, None for a node's; threads: of a thread block.

    Raises:
        UserError E530, E531: the plan's shape (`operations`); E532: the executor cannot do it;
        E533: a limit of its tables; E534: memory out of reach; E460: the kind of call; E526: the
        name.
    """
    _expressible(plan, in_place, op)
    blocks = operations(plan, in_place)
    _reachable(blocks, domain or plan.gpus_per_node)
    ranks: list[list[int]] = [[] for _ in range(plan.n_ranks)]
    for b, block in enumerate(blocks):
        if block.ops:
            ranks[block.rank].append(b)
    tables = _Tables(blocks, ranks)
    document = {
        "name": plan.name,
        "collective": COLLECTIVES[plan.collective.op],
        "protocol": "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "num_threads_per_block": threads,
        "min_message_size": 0,
        "max_message_size": 2**64 - 1,
        "gpus": [tables.gpu(plan, rank, in_place) for rank in range(plan.n_ranks)],
    }
    return json.dumps(document, indent=1) + "\n"


def _expressible(plan: Plan, in_place: bool, op: str) -> None:
    c = plan.collective
    if c.uneven:
        raise fail("E532", f"MSCCL++'s executor cannot do {c.name}: it has no lengths of blocks")
    if c.op not in COLLECTIVES:
        known = ", ".join(COLLECTIVES.values())
        raise fail(
            "E532",
            f"MSCCL++'s executor cannot do {c.op.value}: it gives every rank both buffers; "
            f"it has {known}",
        )
    if c.reduces and op != "sum":
        raise fail("E532", f"MSCCL++'s executor reduces with sum only, not {op}")
    if in_place not in plan.modes:
        raise fail("E460", f"this plan does not serve calls {'in' if in_place else 'out of'} place")
    if _NAME.fullmatch(plan.name) is None:
        raise fail("E526", "the plan's name is not an identifier of at most 63 letters")


def _reachable(blocks: list[MscclppBlock], domain: int) -> None:
    for block in blocks:
        for rank in sorted(block.touches):
            if rank // domain != block.rank // domain:
                raise fail(
                    "E534",
                    f"rank {block.rank} reads or writes rank {rank}'s memory, but only {domain} "
                    "ranks are within reach of a memory channel",
                    help="compile for one node, or say how many ranks share an IPC domain",
                )


class _Tables:
    """Channels, remote buffers and semaphores, numbered as the loader numbers them."""

    def __init__(self, blocks: list[MscclppBlock], ranks: list[list[int]]) -> None:
        self._blocks, self._ranks = blocks, ranks
        # Channel i of a to b and channel i of b to a are the two ends of one: both ranks list
        # the pairs of blocks they share in the same order.
        self._channels: list[list[tuple[int, int]]] = [[] for _ in ranks]  # (own, other block)
        self._semaphores: list[list[tuple[int, int]]] = [[] for _ in ranks]  # (releases, acquires)
        for a, b in sorted(self._pairs("signal", "wait")):
            self._channels[blocks[a].rank].append((a, b))
            self._channels[blocks[b].rank].append((b, a))
        for a, b in sorted(
            (a, b)
            for a, block in enumerate(blocks)
            for op in block.ops
            if isinstance(op, Sync) and op.name == "sem_release"
            for b in op.others
        ):
            if (a, b) not in self._semaphores[blocks[a].rank]:
                self._semaphores[blocks[a].rank].append((a, b))

    def _pairs(self, *names: str) -> set[tuple[int, int]]:
        """Returns pairs of blocks, smaller first, between which there is such an operation."""
        return {
            (min(a, b), max(a, b))
            for a, block in enumerate(self._blocks)
            for op in block.ops
            if isinstance(op, Sync) and op.name in names
            for b in op.others
        }

    def gpu(self, plan: Plan, rank: int, in_place: bool) -> dict[str, Any]:
        """Returns one entry of `gpus`."""
        c, k = plan.collective, plan.channels
        staged = int(plan.stage_slots[rank]) if in_place else 0
        channels, remote = self._channels[rank], self._remote(rank)
        found = {
            "id": rank,
            "input_chunks": c.input_blocks(rank) * c.chunks_per_block * k,
            "output_chunks": c.output_blocks(rank) * c.chunks_per_block * k,
            "scratch_chunks": (int(plan.scratch_slots[rank]) + staged) * k,
            "threadblocks": [
                self._threadblock(b, n * k + instance, instance, k)
                for n, b in enumerate(self._ranks[rank])
                for instance in range(k)
            ],
            "channels": [],
            "remote_buffers": [
                {"rank": r, "type": t, "access_channel_types": ["memory"]} for r, t in remote
            ],
            "semaphores": [{"init_value": 0}] * (len(self._semaphores[rank]) * k),
        }
        if channels:
            peers = [self._blocks[other].rank for _, other in channels for _ in range(k)]
            found["channels"] = [{"channel_type": "memory", "connected_to": peers}]
        return found

    def _remote(self, rank: int) -> list[tuple[int, str]]:
        """Returns the (rank, buffer) that thread blocks of `rank` touch elsewhere, in order."""
        return sorted({place for b in self._ranks[rank] for place in self._touched(b)})

    def _touched(self, b: int) -> list[tuple[int, str]]:
        block = self._blocks[b]
        return sorted(
            {
                (r, letter)
                for op in block.ops
                if isinstance(op, Move)
                for r, letter, _ in (*op.src, *op.dst)
                if r != block.rank
            }
        )

    def _threadblock(self, b: int, number: int, instance: int, instances: int) -> dict[str, Any]:
        block = self._blocks[b]
        own = [i for i, (mine, _) in enumerate(self._channels[block.rank]) if mine == b]
        everything, touched = self._remote(block.rank), self._touched(b)
        for what, value, most in (
            ("operations", len(block.ops), MAX_OPS),
            ("channels", len(own), MAX_CHANNELS),
            ("remote buffers", len(touched), MAX_CHANNELS),
        ):
            if value > most:
                raise fail(
                    "E533",
                    f"{value} {what} in thread block {number} of rank {block.rank}; MSCCL++'s "
                    f"executor takes {most}",
                    help="try --allocator connection, or another --fuse",
                )
        local = {self._channels[block.rank][i][1]: n for n, i in enumerate(own)}
        found: dict[str, Any] = {
            "id": number,
            "ops": [self._op(b, op, instance, instances, local, touched) for op in block.ops],
            "channels": [],
            "remote_buffer_refs": [],
        }
        if own:
            ids = [i * instances + instance for i in own]
            found["channels"] = [{"channel_type": "memory", "channel_ids": ids}]
        if touched:
            ids = [everything.index(place) for place in touched]
            found["remote_buffer_refs"] = [
                {"access_channel_type": "memory", "remote_buffer_ids": ids}
            ]
        return found

    def _op(
        self,
        b: int,
        op: Op,
        instance: int,
        instances: int,
        local: dict[int, int],
        touched: list[tuple[int, str]],
    ) -> dict[str, Any]:
        rank = self._blocks[b].rank

        def place(where: Location) -> dict[str, Any]:
            r, letter, slot = where
            ref = {"type": letter} if r == rank else {"buffer_id": touched.index((r, letter))}
            return ref | {"index": slot * instances + instance, "size": 1}

        match op:
            case Fence():
                return {"name": "nop"}
            case Sync(name="signal" | "wait"):
                ids = [local[other] for other in op.others]
                return {"name": op.name, "channel_ids": ids, "channel_type": "memory"}
            case Sync():
                pairs = [(b, o) if op.name == "sem_release" else (o, b) for o in op.others]
                table = self._semaphores[rank]
                ids = [table.index(pair) * instances + instance for pair in pairs]
                return {"name": op.name, "semaphore_ids": ids}
            case Move():
                found = {
                    "name": op.name,
                    "src_buff": [place(p) for p in op.src],
                    "dst_buff": [place(p) for p in op.dst],
                }
                if op.name != "copy":
                    found["channel_type"] = "memory"
                if op.name in ("rre", "rres"):
                    found["reduce_op"] = "sum"
                return found
