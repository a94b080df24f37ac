"""Collective: for each chunk its first and last ranks and slots, and whether it is reduced.

A collective is, for every chunk, the ranks where a piece of it starts, the ranks that must end
with it, and whether pieces are reduced (SyCCL §5.1: F_s, F_d, r). Chunk ids are global; user
buffers hold *slots*. A user buffer consists of *blocks* of `count` elements (count as in NCCL),
each cut into `chunks_per_block` chunks:

| op            | chunk id            | starts at      | ends at        | in / out blocks per rank |
|---------------|---------------------|----------------|----------------|--------------------------|
| Allreduce     | j                   | all (reduced)  | all            | 1 / 1                    |
| Reduce        | j                   | all (reduced)  | root           | 1 / 1 at root            |
| Broadcast     | j                   | root           | all            | 1 at root / 1            |
| Allgather     | r·S + j             | r              | all            | 1 / R                    |
| Reducescatter | r·S + j             | all (reduced)  | r              | R / 1                    |
| Gather        | r·S + j             | r              | root           | 1 / R at root            |
| Scatter       | r·S + j             | root           | r              | R at root / 1            |
| Alltoall      | (s·R + d)·S + j     | s              | d              | R / R                    |
| SendRecv      | s·S + j             | s              | (s + 1) mod R  | 1 / 1                    |
| custom        | b·S + j             | its `Demand`   | its `Demand`   | those it has / wants     |
| unknown       | r·B + j             | r              | nobody         | B / B, B = chunks / R    |

R ranks, S chunks per block, 0 <= j < S. SendRecv is nccl-tests' sendrecv_perf.
Allgatherv, Reducescatterv, Gatherv, Scatterv and Alltoallv are `uneven`: the same chunks, but every
block of chunk ids has a length and in each user buffer a place of its own, given by a call.
`custom` is a demand of one's own (`ir/demand`), out of place only; without one it is for MSCCL XML
with an unknown result, which programs cannot name. That one's values may go from any slot to any
other, so all chunks have one length: each is a block of its own.
In place means, as in NCCL, that the smaller user buffer lies inside the larger one (Allgather,
Reducescatter, Gather, Scatter) or that both are the same memory (all others).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.arrays import B1, I8
from hccc.ir.demand import Demand, receive_slots, send_slots
from hccc.ir.op_type import NAMES
from hccc.ir.op_type import PROGRAMMABLE as PROGRAMMABLE
from hccc.ir.op_type import UNEVEN as UNEVEN
from hccc.ir.op_type import OpType as OpType

REDUCING = frozenset({OpType.ALLREDUCE, OpType.REDUCESCATTER, OpType.REDUCE})
ROOTED = frozenset({OpType.BROADCAST, OpType.REDUCE, OpType.GATHER, OpType.SCATTER})
MULTICAST = (  # what a switch does: sums, and copies to all ranks
    OpType.ALLREDUCE,
    OpType.REDUCESCATTER,
    OpType.REDUCE,
    OpType.ALLGATHER,
    OpType.BROADCAST,
)
_WHOLE = frozenset({OpType.ALLREDUCE, OpType.BROADCAST, OpType.REDUCE})


def collective_named(name: str) -> OpType:
    """Returns the collective called `allreduce`, `all_reduce` or `AllReduce`. Raises UserError
    E465."""
    plain = name.lower().replace("_", "").replace("-", "")
    if plain not in NAMES:
        raise fail("E465", f"{name!r} is no collective", help=f"there are {', '.join(NAMES)}")
    return PROGRAMMABLE[NAMES.index(plain)]


def spelled(name: str) -> tuple[OpType, bool] | None:
    """Returns the collective that a program's `OpType=` spells, in any case, and whether its blocks
    have lengths of their own; None: there is none of this name."""
    return _SPELLED.get(name.lower())


def spellings() -> list[str]:
    """Returns every spelling of `OpType=`."""
    return [op.value for op in PROGRAMMABLE] + [
        f"{op.value}v" for op in PROGRAMMABLE if op in UNEVEN
    ]


_SPELLED = {
    **{op.value.lower(): (op, False) for op in PROGRAMMABLE},
    **{f"{op.value.lower()}v": (op, True) for op in PROGRAMMABLE if op in UNEVEN},
}


def block_count(op: OpType, n_ranks: int) -> int:
    """Returns the number of blocks of chunk ids of `op`; `n_chunks` must be a multiple of it."""
    if op in _WHOLE:
        return 1
    return n_ranks * n_ranks if op is OpType.ALLTOALL else n_ranks


def demand_of(op: OpType, n_ranks: int, root: int = 0) -> Demand:
    """Returns what a collective asks for, as a demand: with the same chunks and buffers."""
    c = Collective(op, n_ranks, block_count(op, n_ranks), root)
    rank, chunk = np.arange(n_ranks)[None], np.arange(c.n_chunks)[:, None]
    sums = np.full(c.n_chunks, c.reduces and n_ranks > 1)
    return Demand(c.holds(rank, chunk), c.wants(rank, chunk), sums)


def recognised(demand: Demand) -> tuple[OpType, int] | None:
    """Returns the collective, and its root, whose demand this is; None where it is none's."""
    roots = {int(demand.has[0].argmax()), int(demand.wants[0].argmax())}
    for op in PROGRAMMABLE:
        if block_count(op, demand.n_ranks) == len(demand):
            for root in sorted(roots) if op in ROOTED else (0,):
                if demand_of(op, demand.n_ranks, root) == demand:
                    return op, root
    return None


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over `n_ranks` ranks and `n_chunks` global chunks.

    uneven: whether every block has a length of its own, from 0 to `count` elements, known at the
    call. Chunks are those of blocks of `count` elements: the last of a shorter block are short or
    empty. demand: of a custom collective, None where nobody knows its result. The vector methods
    take and return arrays (or ints) of any one shape.
    """

    op: OpType
    n_ranks: int
    n_chunks: int
    root: int = 0
    uneven: bool = False
    demand: Demand | None = None

    @classmethod
    def of(cls, demand: Demand, per_block: int = 1) -> Collective:
        """Returns the collective that a demand asks for, with so many chunks in a block."""
        chunks = len(demand) * per_block
        return cls(OpType.CUSTOM, demand.n_ranks, chunks, demand=demand)

    @property
    def name(self) -> str:
        """The collective, as a program's `OpType=` spells it."""
        return f"{self.op.value}v" if self.uneven else self.op.value

    @property
    def title(self) -> str:
        """The collective and its ranks: `Broadcast over 8 ranks, root 0`."""
        root = f", root {self.root}" if self.rooted else ""
        return f"{self.name} over {self.n_ranks} ranks{root}"

    @property
    def blocks(self) -> int:
        """The number of blocks of chunk ids."""
        return self.n_chunks // self.chunks_per_block

    @property
    def least_chunks(self) -> int:
        """The number of blocks of chunk ids, of which `n_chunks` must be a multiple."""
        return len(self.demand) if self.demand else block_count(self.op, self.n_ranks)

    @property
    def known(self) -> bool:
        """Whether its result is known."""
        return self.op is not OpType.CUSTOM or self.demand is not None

    @property
    def reduces(self) -> bool:
        """Whether pieces are combined."""
        return self.op in REDUCING or (self.demand is not None and bool(self.demand.sums.any()))

    @property
    def rooted(self) -> bool:
        """Whether the collective has a `root`."""
        return self.op in ROOTED

    @property
    def chunks_per_block(self) -> int:
        """S, the number of chunks in a block of `count` elements."""
        return self.n_chunks // self.least_chunks if self.known else 1

    @property
    def chunks_per_rank(self) -> int:
        """The number of chunks in each buffer of a rank, of a custom collective."""
        return self.n_chunks // self.n_ranks

    def source_of(self, chunk: I8) -> I8:
        """Returns the rank where a chunk starts, for collectives that do not reduce; the first of
        several that have copies."""
        if self.demand:
            return self.demand.source()[np.asarray(chunk) // self.chunks_per_block]
        if self.op is OpType.CUSTOM:
            return np.asarray(chunk) // self.chunks_per_rank
        block = np.asarray(chunk) // self.chunks_per_block
        if self.op in (OpType.BROADCAST, OpType.SCATTER):
            return np.full_like(block, self.root)
        return block // self.n_ranks if self.op is OpType.ALLTOALL else block

    def holds(self, rank: I8, chunk: I8) -> B1:
        """Tells whether `rank` starts with a piece of `chunk`."""
        if self.demand:
            of_demand: B1 = self.demand.has[np.asarray(chunk) // self.chunks_per_block, rank]
            return of_demand
        if self.reduces:
            return np.ones(np.broadcast(rank, chunk).shape, np.bool_)
        return np.equal(self.source_of(chunk), rank)

    def target_of(self, chunk: I8) -> I8:
        """Returns the only rank that must end with a chunk; not for `all_want`."""
        block = np.asarray(chunk) // self.chunks_per_block
        if self.op in (OpType.REDUCE, OpType.GATHER):
            return np.full_like(block, self.root)
        if self.op is OpType.ALLTOALL:
            return block % self.n_ranks
        return (block + 1) % self.n_ranks if self.op is OpType.SENDRECV else block

    @property
    def all_want(self) -> bool:
        """Whether every rank must end with every chunk."""
        return self.op in (OpType.ALLREDUCE, OpType.BROADCAST, OpType.ALLGATHER)

    def wants(self, rank: I8, chunk: I8) -> B1:
        """Tells whether `rank` must end with the whole of `chunk`."""
        if self.demand:
            of_demand: B1 = self.demand.wants[np.asarray(chunk) // self.chunks_per_block, rank]
            return of_demand
        if self.all_want:
            return np.ones(np.broadcast(rank, chunk).shape, np.bool_)
        if self.op is OpType.CUSTOM:
            return np.zeros(np.broadcast(rank, chunk).shape, np.bool_)
        return np.equal(self.target_of(chunk), rank)

    def input_slot(self, rank: I8, chunk: I8) -> I8:
        """Returns the slot of a chunk in the send buffer of a rank that holds it."""
        chunk = np.asarray(chunk)
        if self.demand:
            block, j = np.divmod(chunk, self.chunks_per_block)
            return send_slots(self.demand).place[block, rank] * np.int64(self.chunks_per_block) + j
        if self.op in (OpType.ALLGATHER, OpType.GATHER, OpType.SENDRECV):
            return chunk % self.chunks_per_block
        if self.op is OpType.CUSTOM:
            return chunk % self.chunks_per_rank
        if self.op is OpType.ALLTOALL:
            return chunk % (self.n_ranks * self.chunks_per_block)
        return chunk

    def output_slot(self, rank: I8, chunk: I8) -> I8:
        """Returns the slot of a chunk in the receive buffer of a rank that wants it."""
        chunk, per = np.asarray(chunk), self.chunks_per_block
        if self.demand:
            place = receive_slots(self.demand).place[chunk // per, rank]
            return place * np.int64(per) + chunk % per
        if self.op in (OpType.REDUCESCATTER, OpType.SCATTER, OpType.SENDRECV):
            return chunk % per
        if self.op is OpType.ALLTOALL:
            return chunk // per // self.n_ranks * per + chunk % per
        return chunk

    def input_chunk(self, rank: I8, slot: I8) -> I8:
        """Returns the chunk in slot `slot` of `rank`'s send buffer: the inverse of `input_slot`."""
        if self.demand:
            at, j = np.divmod(np.asarray(slot), self.chunks_per_block)
            return send_slots(self.demand).block[at, rank] * np.int64(self.chunks_per_block) + j
        if self.op in (OpType.ALLGATHER, OpType.GATHER, OpType.SENDRECV):
            return np.asarray(rank) * self.chunks_per_block + slot
        if self.op is OpType.CUSTOM:
            return np.asarray(rank) * self.chunks_per_rank + slot
        if self.op is OpType.ALLTOALL:
            return np.asarray(rank) * self.n_ranks * self.chunks_per_block + slot
        return np.asarray(slot) + np.zeros_like(rank)

    def output_chunk(self, rank: I8, slot: I8) -> I8:
        """Returns the chunk that must end in slot `slot` of `rank`'s receive buffer."""
        rank, slot, per = np.asarray(rank), np.asarray(slot), self.chunks_per_block
        if self.demand:
            block = receive_slots(self.demand).block[slot // per, rank]
            return block * np.int64(per) + slot % per
        if self.op in (OpType.REDUCESCATTER, OpType.SCATTER):
            return rank * per + slot
        if self.op is OpType.SENDRECV:
            return (rank - 1) % self.n_ranks * per + slot
        if self.op is OpType.ALLTOALL:
            return (slot // per * self.n_ranks + rank) * per + slot % per
        return slot + np.zeros_like(rank)

    def input_blocks(self, rank: int) -> int:
        """Returns the blocks of `count` elements in `rank`'s send buffer; 0 where NCCL ignores
        it."""
        if self.demand:
            return int(send_slots(self.demand).counts[rank])
        if self.op is OpType.CUSTOM:
            return self.chunks_per_rank
        if self.op in (OpType.REDUCESCATTER, OpType.ALLTOALL):
            return self.n_ranks
        if self.op is OpType.SCATTER:
            return self.n_ranks if rank == self.root else 0
        return int(self.op is not OpType.BROADCAST or rank == self.root)

    def output_blocks(self, rank: int) -> int:
        """Returns the blocks of `count` elements in `rank`'s receive buffer; 0 where NCCL ignores
        it."""
        if self.demand:
            return int(receive_slots(self.demand).counts[rank])
        if self.op is OpType.CUSTOM:
            return self.chunks_per_rank
        if self.op in (OpType.ALLGATHER, OpType.ALLTOALL):
            return self.n_ranks
        if self.op is OpType.GATHER:
            return self.n_ranks if rank == self.root else 0
        return int(self.op is not OpType.REDUCE or rank == self.root)

    def most_blocks(self) -> int:
        """Returns the number of blocks in the largest buffer of any rank: nccl-tests' size."""
        if self.demand:
            d = self.demand
            return int(max(send_slots(d).counts.max(), receive_slots(d).counts.max()))
        ranks = {self.root, (self.root + 1) % self.n_ranks}  # all but the root are alike
        return max(max(self.input_blocks(r), self.output_blocks(r)) for r in ranks)

    def alias_offset(self, rank: int) -> int:
        """Returns, in place, the output slot minus the input slot of the same memory at `rank`, in
        chunks.

        Allgather and Gather put the send buffer at block `rank` of the receive buffer;
        Reducescatter and Scatter the receive buffer at block `rank` of the send buffer.
        """
        if self.op in (OpType.ALLGATHER, OpType.GATHER):
            return rank * self.chunks_per_block
        if self.op in (OpType.REDUCESCATTER, OpType.SCATTER):
            return -rank * self.chunks_per_block
        return 0

    @property
    def has_in_place(self) -> bool:
        """Whether calls can be in place: the buffers of a demand are never one memory."""
        return self.demand is None

    @property
    def swaps_in_place(self) -> bool:
        """Whether, in place, one slot holds one chunk at the start and another at the end."""
        return self.op in (OpType.ALLTOALL, OpType.SENDRECV)

    def bus_factor(self) -> float:
        """Returns busbw / algbw (nccl-tests doc/PERFORMANCE.md)."""
        n = self.n_ranks
        if self.op is OpType.ALLREDUCE:
            return 2 * (n - 1) / n
        if self.op in (OpType.BROADCAST, OpType.REDUCE, OpType.SENDRECV) or self.demand:
            return 1.0
        return (n - 1) / n
