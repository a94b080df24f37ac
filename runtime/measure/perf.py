"""perf: measures and checks a collective as nccl-tests does, all ranks at once.

A row is one size, type and reduction, out of place and in place. Time is the mean over the timed
launches, all ranks in each; algbw = size / time, busbw = algbw · the collective's bus factor
(nccl-tests doc/PERFORMANCE.md). `size` is the larger of a rank's buffers in bytes, `count` the
elements of a block. After the timed launches one more runs on fresh data, and every byte of
every rank is compared: results, send buffers, and the guards around both. (The results of a custom
collective nobody knows.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from hccc.base.dtypes import named
from hccc.ir.collective import Collective
from hccc.ir.uneven import RECEIVE, table_of
from hccc.runtime.layout import DTYPES
from hccc.runtime.measure import patterns
from hccc.runtime.measure.patterns import Array, Expected, Pattern
from hccc.runtime.recording import LaunchRecording

GUARD = 256  # bytes before, between and after a rank's buffers; keeps them aligned
_PAGE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class RankMemory:
    """One rank's buffers in one array of its dtype; offsets and lengths in elements.

    Out of place: guard, receive, guard, send, guard. In place the smaller buffer lies in the
    larger one (`Collective.alias_offset`).
    """

    slab: Array
    send_at: int
    send_length: int
    receive_at: int
    receive_length: int
    sends: bool  # whether the collective has a send buffer here at all
    receives: bool

    @property
    def send(self) -> Array:
        """The send buffer; empty where the collective has none at this rank."""
        return self.slab[self.send_at : self.send_at + self.send_length]

    @property
    def receive(self) -> Array:
        """The receive buffer; empty where the collective has none at this rank."""
        return self.slab[self.receive_at : self.receive_at + self.receive_length]

    def like(self) -> RankMemory:
        """Allocates memory of the same layout, not initialised."""
        return replace(self, slab=np.empty_like(self.slab))


class Session(Protocol):
    """Buffers of all ranks bound to a built collective."""

    def put(self) -> None:
        """Brings what the host wrote into the ranks' memory."""

    def get(self) -> None:
        """Brings the ranks' memory back to the host."""

    def run(self, launches: int) -> float:
        """Launches all ranks so many times; the seconds it took."""
        ...


# (memory of every rank, count, in place) → a session
Bind = Callable[[Sequence[RankMemory], int, bool], Session]


class Ranks(Protocol):
    """All ranks with the memory of one launch, wherever that is."""

    def fill(self, p: Pattern) -> None:
        """Fills every rank's buffers for a launch on `p`."""

    def run(self, launches: int, warmups: int) -> float:
        """Launches all ranks so many times, after as many warmups; the seconds without those."""
        ...

    def wrong(self, p: Pattern, keeps_input: bool) -> int:
        """Counts the elements of all ranks that differ from the result of one launch on `p`."""
        ...

    def differences(self, p: Pattern) -> int | None:
        """Compares the devices after one launch on data whose sums are rounded."""
        ...


@runtime_checkable
class Recordable(Protocol):
    """Ranks whose launches can be recorded."""

    def record(self, blocks: int, slots: int) -> LaunchRecording:
        """Launches all ranks once. blocks: thread blocks of a rank times channels; slots: a power
        of two, the most records of each that are kept."""
        ...


# (count, type and reduction; in place) → the ranks
Make = Callable[[Pattern, bool], Ranks]
# (ranks, count, in place): what is done with ranks that were timed, before they are checked
Timed = Callable[[Ranks, int, bool], None]


@dataclass(frozen=True, slots=True)
class PerfTiming:
    """One half of a row: µs, GB/s, GB/s, and wrong elements (None: not checked).

    `outside`: where no result is known (custom collectives), elements of send buffers and of the
    guards around all buffers that changed.
    """

    time: float
    algbw: float
    busbw: float
    wrong: int | None
    outside: int = 0


@dataclass(frozen=True, slots=True)
class PerfRow:
    """One line of the table; `redop` is none and `root` -1 where there is none."""

    size: int
    count: int
    dtype: str
    redop: str
    root: int
    out_of_place: PerfTiming | None
    in_place: PerfTiming | None

    @property
    def halves(self) -> tuple[PerfTiming, ...]:
        """The halves that were measured."""
        return tuple(half for half in (self.out_of_place, self.in_place) if half)

    @property
    def wrong(self) -> int:
        """Wrong elements of both halves."""
        return sum((half.wrong or 0) + half.outside for half in self.halves)


@dataclass(frozen=True, slots=True)
class SizeSchedule:
    """The sizes to measure, in bytes; `factor` multiplies, or else `step` is added."""

    smallest: int
    largest: int
    factor: float | None
    step: int
    launches: int
    warmups: int
    check: bool
    modes: tuple[bool, ...] = (False, True)  # the values of "in place" to measure
    keeps_input: bool = True  # whether send buffers must come out as they went in
    skew: str = ""  # of the lengths of an uneven collective's blocks: `uneven.skewed`
    any_bits: bool = False  # whether floats may be added in any order

    def sizes(self) -> Iterator[int]:
        """Lists the sizes, smallest first; always the smallest one."""
        size = self.smallest
        while size <= max(self.smallest, self.largest):
            yield size
            more = int(size * self.factor) if self.factor else size + self.step
            size = max(more, size + 1)


def count_of(c: Collective, size: int, itemsize: int) -> int:
    """Returns how many elements a block has, so that no rank has a buffer of more than `size`
    bytes."""
    return size // (itemsize * c.most_blocks())


def measure(
    c: Collective,
    dtype: str,
    op: str,
    size: int,
    schedule: SizeSchedule,
    bind: Bind,
    reference: Bind | None = None,
    *,
    timed: Timed = lambda *_: None,
) -> PerfRow:
    """Measures one row of ranks whose memory is this process's. `reference`: another device, every
    bit of which must be the same on rough data, or near where sums have any order.

    Raises the sessions' errors (a fault, a timeout).
    """

    def here(p: Pattern, in_place: bool) -> Ranks:
        return _Here(p, in_place, bind, reference, schedule.any_bits)

    return measure_ranks(c, dtype, op, size, schedule, here, timed)


def measure_ranks(
    c: Collective,
    dtype: str,
    op: str,
    size: int,
    schedule: SizeSchedule,
    make: Make,
    timed: Timed = lambda *_: None,
) -> PerfRow:
    """Measures one row. Raises the ranks' errors."""
    itemsize = DTYPES[dtype].itemsize
    count = count_of(c, size, itemsize)
    actual = count * itemsize * c.most_blocks()
    pattern = Pattern(c, dtype, op, count, blocks=table_of(c, count, schedule.skew))
    halves = [
        _half(pattern, actual, schedule, make, in_place, timed)
        if in_place in schedule.modes
        else None
        for in_place in (False, True)
    ]
    redop = named(op) if c.reduces else "none"
    return PerfRow(actual, count, dtype, redop, c.root if c.rooted else -1, halves[0], halves[1])


def _half(
    p: Pattern, size: int, schedule: SizeSchedule, make: Make, in_place: bool, timed: Timed
) -> PerfTiming:
    c = p.collective
    ranks = make(p, in_place)
    ranks.fill(p)
    seconds = ranks.run(schedule.launches, schedule.warmups) / schedule.launches
    timed(ranks, p.count, in_place)
    wrong, outside = None, 0
    if schedule.check:
        fresh = replace(p, seed=2 + in_place)  # data that no launch before had
        ranks.fill(fresh)
        ranks.run(1, 0)
        changed = ranks.wrong(fresh, schedule.keeps_input)
        wrong, outside = (changed, 0) if c.known else (None, changed)
        differ = ranks.differences(p)
        wrong = wrong if differ is None else (wrong or 0) + differ
    algbw = size / seconds / 1e9 if seconds > 0 else 0.0
    return PerfTiming(seconds * 1e6, algbw, algbw * c.bus_factor(), wrong, outside)


class _Here:
    """Ranks whose memory is this process's, bound to a device and to another one for comparison."""

    def __init__(
        self, p: Pattern, in_place: bool, bind: Bind, reference: Bind | None, any_bits: bool
    ) -> None:
        self._differ = partial(patterns.far, p) if any_bits else patterns.wrong
        ranks = range(p.collective.n_ranks)
        self._memory = [allocate(p, rank, in_place) for rank in ranks]
        self._session = bind(self._memory, p.count, in_place)
        self._reference = partial(reference, self._memory, p.count, in_place) if reference else None

    def fill(self, p: Pattern) -> None:
        _each(p.collective, lambda rank: fill(p, rank, self._memory[rank]))
        self._session.put()

    def run(self, launches: int, warmups: int) -> float:
        if warmups:
            self._session.run(warmups)
        return self._session.run(launches)

    def record(self, blocks: int, slots: int) -> LaunchRecording:
        assert isinstance(self._session, Recordable)
        return self._session.record(blocks, slots)

    def wrong(self, p: Pattern, keeps_input: bool) -> int:
        self._session.get()
        return wrong_elements(p, self._memory, keeps_input)

    def differences(self, p: Pattern) -> int | None:
        """Compares the devices after one launch on data whose sums are rounded."""
        if self._reference is None:
            return None
        results = []
        for device in (self._session, self._reference()):
            _each(p.collective, lambda rank: fill(p, rank, self._memory[rank], rough=True))
            device.put()
            device.run(1)
            device.get()
            results.append([m.slab.copy() for m in self._memory])
        return _each(p.collective, lambda r: self._differ(results[0][r], results[1][r]))


def _bytes(n: int) -> Array:
    return np.empty(n, np.uint8)


def allocate(
    p: Pattern, rank: int, in_place: bool, empty: Callable[[int], Array] = _bytes
) -> RankMemory:
    """Allocates one rank's buffers, on 256-byte boundaries where they are apart. empty: makes an
    array of so many bytes."""
    c = p.collective
    ins, outs = c.input_blocks(rank), c.output_blocks(rank)
    send, receive = ins * p.count, outs * p.count
    guard = GUARD // p.numpy.itemsize
    if in_place:
        shift = c.alias_offset(rank) // c.chunks_per_block * p.count if ins and outs else 0
        send_at, receive_at = guard + max(shift, 0), guard + max(-shift, 0)
        end = guard + max(send, receive)
    else:
        receive_at, send_at = guard, guard + -(-receive // guard) * guard + guard
        end = send_at + send
    slab = _aligned(end + guard, p, empty)
    return RankMemory(slab, send_at, send, receive_at, receive, ins > 0, outs > 0)


def _aligned(n: int, p: Pattern, empty: Callable[[int], Array]) -> Array:
    """Allocates `n` elements that begin a page."""
    raw = empty(n * p.numpy.itemsize + _PAGE)
    skip = -raw.ctypes.data % _PAGE
    return raw[skip : skip + n * p.numpy.itemsize].view(p.numpy)


def _each(c: Collective, work: Callable[[int], int]) -> int:
    """Does `work` for every rank on all cores (NumPy lets go of the interpreter); the sum."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(work, range(c.n_ranks)))


def fill(p: Pattern, rank: int, memory: RankMemory, rough: bool = False) -> int:
    """Fills one rank's buffers for a launch on `p`."""
    patterns.poison(memory.slab)
    memory.send[...] = (patterns.rough if rough else patterns.inputs)(p, rank)
    return 0


def wanted(p: Pattern) -> Expected | None:
    """Computes the results of ranks; None: receive buffers may hold anything where nobody knows the
    result."""
    return patterns.expected(p) if p.collective.known else None


def wrong_at(
    p: Pattern, rank: int, memory: RankMemory, want: Expected | None, keeps_input: bool
) -> int:
    """Counts the elements of one rank that differ from the result of one launch on `p`."""
    image = memory.like()
    patterns.poison(image.slab)
    image.send[...] = patterns.inputs(p, rank) if keeps_input else memory.send
    result = want.at(rank) if want else memory.receive
    if p.blocks is None:
        image.receive[...] = result
    else:
        for _, first, length in p.blocks.spans(rank, RECEIVE):
            image.receive[first : first + length] = result[first : first + length]
    return patterns.wrong(memory.slab, image.slab)


def wrong_elements(p: Pattern, memory: Sequence[RankMemory], keeps_input: bool = True) -> int:
    """Counts the elements of all ranks that are not what one launch on `p` leaves there."""
    want = wanted(p)
    return _each(p.collective, lambda rank: wrong_at(p, rank, memory[rank], want, keeps_input))
