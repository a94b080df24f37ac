"""Plan: rank → thread block → primitives, with buffers, waits and posts; code is emitted from it.

Primitives are sorted by (rank, thread block, order of execution): thread block b (numbered over
all ranks, rank by rank) executes primitives `tb_ptr[b]:tb_ptr[b + 1]` in row order, each for
every micro-batch of a window before the next (ResCCL §3, task-level execution).

A flag is a counter in its rank's memory, one per channel: after micro-batch m its only producer
stores `base + m + 1`. `waits[i]` are flags of primitive i's own rank, `post_*` flags raised at
other (or the own) rank. A QUEUE operand implies waiting for and raising its queue's flags; in
protocol LL it is a packet slot, whose packets say themselves that they have come.

Invariants (checked by `proofs/race`, `proofs/deadlock`, `proofs/result` and `plan_check`)
1. Every flag has exactly one primitive that posts it, and at least one that waits for it.
2. Operands are inside their buffers; sizes are in chunks, never bytes.
3. Memory operands are at the primitive's own rank (STAGED), or anywhere (DIRECT).
4. LL: the transport is staged, in one memory domain; one window of one micro-batch.
5. `multicast`: the transport is direct; what is of all ranks is so in every kind of call.
6. MIXED: memory that is read is in the primitive's own memory domain. A write into the memory of
   another domain is a *network put*: a proxy carries the bytes there from the primitive's first
   memory destination at its own rank; without one, from its only source, at its own rank.

Printed: versioned JSON, `ir/plan_json.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.base.dtypes import OPS, named
from hccc.base.shown import brief
from hccc.ir.arrays import B1, I4, I8, U1, Csr, Ragged, frozen
from hccc.ir.choices import Accumulate, Bits, PlanProtocol
from hccc.ir.collective import Collective, OpType
from hccc.ir.micro_batch import COUNTED, GRAIN, MOST_QUEUED_BATCHES
from hccc.ir.primitives import (
    Buffer,
    Operands,
    Queues,
    Transport,
    at_all_ranks,
    crossing,
    network_puts,
    put_places,
)
from hccc.ir.provenance import Provenance

PLAN_VERSION = 2
MOST_BLOCKS = 1 << 30  # thread blocks of one launch, all its ranks together


@dataclass(frozen=True, slots=True, eq=False)
class Posts(Ragged):
    """Rows of (rank, flag): rank i4[m], flag i4[m]."""

    rank: I4
    flag: I4


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One compiled algorithm; P primitives, T thread blocks over all ranks."""

    name: str
    source: str  # the file it was compiled from, for comments
    collective: Collective
    channels: int  # copies of each thread block, each with its part of every chunk
    warps: int
    gpus_per_node: int
    nics_per_node: int
    transport: Transport
    memory_domain: I4  # i4[n_ranks], from 0: ranks of one domain address each other's memory
    queue_slots: int  # S, a power of two (queues)
    n_tb: I4  # i4[n_ranks]
    tb_ptr: I8  # i8[T + 1]
    chunk: I4  # i4[P]
    sub: I4  # i4[P], sub-pipeline; in an imported plan, the step
    line: I4  # i4[P], source line of the first task, 0 for local copies
    final: U1  # u1[P]
    guard: U1  # u1[P]
    src: Operands  # rows P
    dst: Operands  # rows P
    waits: Csr  # rows P, flags of the own rank
    posts: Posts  # rows P
    n_flags: I4  # i4[n_ranks]
    scratch_slots: I4  # i4[n_ranks]
    stage_slots: I4  # i4[n_ranks]
    queues: Queues
    max_window: int = 0  # the largest window it may run with, 0 for any
    in_place: bool = True  # whether it serves in-place calls
    out_of_place: bool = True  # whether it serves out-of-place calls
    keeps_input: bool = True  # whether an out-of-place call leaves the send buffer as it was
    window: int = 0  # micro-batches, for calls that name none; 0 for the largest window
    accumulate: Accumulate = Accumulate.FLOAT32  # the type in which a primitive adds its sources
    grain: int = GRAIN  # bytes: sets the micro-batch of calls that name none (ir/micro_batch)
    provenance: Provenance | None = None  # how it was made, if known
    reductions: tuple[str, ...] = ()  # one's own, beside those there are: base/reductions
    protocol: PlanProtocol = PlanProtocol.SIMPLE
    max_bytes: int = 0  # LL: the largest call, by its largest buffer; 0 for any
    greets: bool = False  # LL: whether ranks send each other an empty packet in every launch
    multicast: Bits | None = None  # whether a switch does what is of all ranks, and how it may add

    def __post_init__(self) -> None:
        for name in (
            "n_tb",
            "chunk",
            "sub",
            "line",
            "n_flags",
            "scratch_slots",
            "stage_slots",
            "memory_domain",
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        for name in ("final", "guard"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.uint8))
        object.__setattr__(self, "tb_ptr", frozen(self.tb_ptr, np.int64))

    def __len__(self) -> int:
        return len(self.chunk)

    def __repr__(self) -> str:
        return brief(self, f"{self.name}: {self.collective.title}, {len(self):,} primitives")

    @property
    def modes(self) -> tuple[bool, ...]:
        """The values of "in place" that the Plan serves."""
        return (*[False] * self.out_of_place, *[True] * self.in_place)

    @property
    def reduces(self) -> bool:
        """Whether primitives combine values; in a custom collective they may, too."""
        return self.collective.reduces or bool(self.src.counts().max(initial=0) > 1)

    @property
    def unusual_sums(self) -> str | None:
        """The type and order of sums in words, where they are not those that are usual."""
        usual = self.accumulate is Accumulate.FLOAT32 and self.multicast is None
        return None if usual or not self.reduces else self.sums

    @property
    def sums(self) -> str:
        """The type and, if a switch may add, the order of sums, in words."""
        added = [self.multicast.stated] if self.multicast and self.reduces else []
        return "; ".join([self.accumulate.sums, *added])

    @property
    def averages(self) -> bool:
        """Whether the Plan marks where a reduction is complete, which is where an average
        divides."""
        return self.collective.op is not OpType.CUSTOM

    def multiplies(self) -> bool:
        """Tells whether each value that enters is read by a kernel from a send buffer that nothing
        writes, which is where premul_sum multiplies it.

        In place the same primitives then read the same values: what they read has at least as many
        contributions as out of place, and both add each once (`proofs/result`). O(size of Plan).
        """
        c = self.collective
        if not c.reduces or c.demand or not self.out_of_place or self.guard.any():
            return False
        carried = self.carried()
        return not bool((self.dst.buffer == Buffer.INPUT).any() or (carried == Buffer.INPUT).any())

    def carried(self) -> I4:
        """Returns the buffer from which a proxy takes each network put: i4[puts]."""
        put = self.network_puts()
        source, target = (o.buffer.astype(np.int32) for o in (self.src, self.dst))
        if not put.any():
            return np.zeros(0, np.int32)
        found = put_places(self.src, self.dst, self.rank_of(), source, target)
        of_puts: I4 = found[self.dst.owner()[put]]
        return of_puts

    @property
    def operations(self) -> tuple[str, ...]:
        """The reductions that its kernels can be built for: names, and texts of one's own."""
        lacks = {"avg"} if not self.averages else set()
        lacks |= {"premul_sum"} if not self.multiplies() else set()
        return (*(op for op in OPS if op not in lacks), *self.reductions)

    def operation(self, op: str) -> str:
        """Returns the text of one's own reduction of this name; any other name as it is."""
        return next((text for text in self.reductions if named(text) == op), op)

    @property
    def largest_window(self) -> int:
        """The largest legal window (micro-batches), 0 for any.

        Besides `max_window`: the two ends of a queue may be a window's messages apart, which must
        be fewer than its counters can tell apart.
        """
        longest = int(self.queues.length.max(initial=0))
        if longest * MOST_QUEUED_BATCHES < COUNTED:
            return self.max_window
        most = (COUNTED - 1) // longest
        return min(self.max_window or most, most)

    @property
    def default_window(self) -> int:
        """The window of calls that name none, 0 for all micro-batches."""
        return self.window or self.largest_window

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return self.collective.n_ranks

    @property
    def blocks_per_rank(self) -> int:
        """The most thread blocks of any rank, all channels together."""
        return int(self.n_tb.max(initial=0)) * self.channels

    def block_rank(self) -> I4:
        """Returns the rank of every thread block: i4[T]."""
        return np.repeat(np.arange(self.n_ranks, dtype=np.int32), self.n_tb)

    def block_of(self) -> I4:
        """Returns the thread block (numbered over all ranks) of every primitive: i4[P]."""
        return np.repeat(np.arange(len(self.tb_ptr) - 1, dtype=np.int32), np.diff(self.tb_ptr))

    def rank_of(self) -> I4:
        """Returns the rank of every primitive: i4[P]."""
        return self.block_rank()[self.block_of()]

    def connections(self) -> tuple[int, int]:
        """Returns the number of pairs of ranks that exchange data, within a memory domain and
        between two."""
        _, here, there = crossing(self.src, self.dst, self.queues, self.rank_of())
        pairs = np.unique(here.astype(np.int64) * self.n_ranks + there)
        domain = self.memory_domain
        apart = domain[pairs // self.n_ranks] != domain[pairs % self.n_ranks]
        return int((~apart).sum()), int(apart.sum())

    def network_queues(self) -> B1:
        """Tells which queues join two memory domains, so that a proxy carries messages: b1[Q]."""
        return self.queues.between(self.memory_domain)

    def network_puts(self) -> B1:
        """Tells which destinations are memory of another domain, written by a proxy: b1[entries of
        dst]."""
        return network_puts(self.dst, self.rank_of(), self.memory_domain)

    def network_posts(self) -> B1:
        """Tells which flags are raised in another memory domain, by a proxy: b1[posts]."""
        there = self.memory_domain[self.posts.rank]
        away: B1 = there != self.memory_domain[self.rank_of()[self.posts.owner()]]
        return away

    def one_sided(self) -> bool:
        """Tells whether any primitive reads or writes memory of another rank; otherwise all data
        goes in messages."""
        rank = self.rank_of()
        return any(
            bool(((o.buffer != Buffer.QUEUE) & (o.rank != rank[o.owner()])).any())
            for o in (self.src, self.dst)
        )

    def at_all_ranks(self) -> tuple[B1, B1]:
        """Tells which primitives read one place of all ranks, and which write one, by a multicast
        address where there is one: b1[P] each, all False without `multicast`."""
        if self.multicast is None:
            none = np.zeros(len(self), np.bool_)
            return none, none
        return at_all_ranks(self.src, self.n_ranks), at_all_ranks(self.dst, self.n_ranks)

    def length_index(self) -> I4:
        """Returns the number from which kernels take the length that each primitive moves: its
        chunk's index in its block, or its chunk where every block has its own length. i4[P]."""
        c = self.collective
        return self.chunk if c.uneven else self.chunk % np.int32(c.chunks_per_block)

    def touches_peers(self) -> bool:
        """Tells whether any rank accesses a user buffer of another rank, or a proxy reads a user
        buffer."""
        rank = self.rank_of()
        user = [Buffer.INPUT, Buffer.OUTPUT, Buffer.STAGE]
        if np.isin(self.carried(), user).any():
            return True
        return any(
            bool((np.isin(o.buffer, user) & (o.rank != rank[o.owner()])).any())
            for o in (self.src, self.dst)
        )
