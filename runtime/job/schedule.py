"""schedule: makes of a Job the tasks of one rank's call, for a count and so many micro-batches.

A rank has of each piece of a part its input or what was written last (*work*): in the receive
buffer where the rank must end with the part, else in scratch. What a step writes goes there. A copy
over the border that is reduced first comes to a place of its own, in memory of the host. Tasks are
in the order of `ir/job_order`; those of other lanes are waited for where they wrote what a task
reads, or use what it writes.

Sizes and places are in elements. Where a vendor cluster's ranks have equal pieces, its library's
ReduceScatter and AllGather take the place of a Reduce and a Broadcast for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I8
from hccc.ir.job import NOBODY, Job, JobOp
from hccc.ir.job_order import order

# hccc_job_task and hccc_job_wait of hccc_job.h.
TASK = np.dtype(
    [(name, "i4") for name in ("kind", "step", "peer", "group", "from", "with", "to", "within")]
    + [(name, "i8") for name in ("from_at", "with_at", "to_at", "count", "first_wait", "n_waits")]
)
WAIT = np.dtype([("lane", "i4"), ("tasks", "i4")])


class Kind(IntEnum):
    """hccc_job_kind."""

    REDUCE = 0
    BROADCAST = 1
    REDUCE_SCATTER = 2
    ALL_GATHER = 3
    SEND = 4
    RECEIVE = 5
    HOP_SEND = 6
    HOP_RECEIVE = 7
    ADD = 8
    COPY = 9


class JobBuffer(IntEnum):
    """Buffers of a call."""

    INPUT = 0
    OUTPUT = 1
    SCRATCH = 2
    ARRIVED = 3
    NOWHERE = 4


@dataclass(frozen=True, slots=True, eq=False)
class JobSchedule:
    """The tasks of one rank. tasks: TASK[n]; lane_begin: i8[lanes + 1]; waits: WAIT[m]; scratch,
    arrived: elements; output: elements of the receive buffer."""

    tasks: NDArray[Any]
    lane_begin: I8
    waits: NDArray[Any]
    scratch: int
    arrived: int
    output: int

    def lane(self, number: int) -> NDArray[Any]:
        """Returns the tasks of a lane."""
        return self.tasks[self.lane_begin[number] : self.lane_begin[number + 1]]


_At = tuple[int, int]  # a buffer, and an element of it
_Done = tuple[int, int]  # a lane, and a task of it
_HERE: _At = (JobBuffer.NOWHERE, 0)


@dataclass(frozen=True, slots=True)
class _Span:
    """Pieces of a part in a micro-batch: from `first` to before `end`."""

    part: int
    batch: int
    first: int
    end: int

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yields the key of each piece."""
        return ((self.part, self.batch, k) for k in range(self.first, self.end))


def schedule(
    job: Job,
    rank: int,
    count: int,
    batches: int,
    in_place: bool,
    lanes: bool = True,
    messages: bool = False,
) -> JobSchedule:
    """Returns the tasks of a rank. O(tasks of all ranks). count: elements of a block; lanes: False
    for all tasks in one, an ordered list; messages: whether what a rank of the vendor cluster sends
    to another goes as over a border, as its library has no sends."""
    made = _RankTasks(job, rank, count, batches, in_place, lanes or messages, messages)
    for task in order(job, batches):
        made.do(task.wave, task.batch, task.step)
    made.finish()
    return made.schedule()


class _RankTasks:
    """The tasks of a rank, made in order."""

    def __init__(
        self,
        job: Job,
        rank: int,
        count: int,
        batches: int,
        in_place: bool,
        lanes: bool,
        messages: bool,
    ) -> None:
        self._job, self._rank, self._count, self._batches = job, rank, count, batches
        c, v = job.collective, job.clusters
        self._own = int(v.of_ranks()[rank])
        self._members = v.members(self._own)
        self._in_place, self._several, self._no_sends = in_place, lanes, messages
        cuts, self._per = v.cuts(), c.chunks_per_block
        self._cuts = [(cut.numerator, cut.denominator) for cut in cuts]
        self._pieces = len(cuts) - 1
        self._owners: list[list[int]] = v.owners().tolist()
        parts = np.arange(c.n_chunks)
        here = np.full_like(parts, rank)
        self._holds = c.holds(here, parts).tolist()
        self._wants = c.wants(here, parts).tolist()
        self._in_block = (c.input_slot(here, parts) // self._per).tolist()
        self._out_block = (c.output_slot(here, parts) // self._per).tolist()
        self._written: set[tuple[int, int, int]] = set()  # pieces that are work
        self._writer: dict[tuple[int, int, int], _Done] = {}
        self._readers: defaultdict[tuple[int, int, int], list[_Done]] = defaultdict(list)
        self._lanes: list[list[list[int]]] = [[]]
        self._waits: list[list[dict[int, int]]] = [[]]
        self._lane_of: dict[tuple[int, bool], int] = {}
        self._scratch, self._arrived, self._work_at = 0, 0, dict[int, int]()
        self._crossing: dict[tuple[int, ...], list[tuple[int, int, int, int]]] = {}
        self._step, self._group = -1, 0
        self._first: _Done | None = None
        self._input: _At = (JobBuffer.INPUT, 0)
        if in_place and c.swaps_in_place:
            self._input = self._reserve(c.input_blocks(rank) * count)
            length = c.input_blocks(rank) * count
            self._first = self._add(0, Kind.COPY, (JobBuffer.INPUT, 0), self._input, length)

    def do(self, wave: int, batch: int, step: int) -> None:
        """Makes what this rank does in a task."""
        op, src, dst, part, sender, receiver, _ = self._job.steps[step].tolist()
        if self._own not in (src, dst):
            return
        self._step, self._group = step, wave + 1
        whole = _Span(part, batch, 0, self._pieces)
        match JobOp(op):
            case JobOp.C2C_CPY | JobOp.C2C_RED:
                self._hop(whole, src, dst, sender, receiver, reduces=op == JobOp.C2C_RED)
            case JobOp.REDUCE if len(self._members) > 1:
                self._reduce(whole, receiver)
            case JobOp.BROADCAST if len(self._members) > 1:
                self._broadcast(whole, sender)
            case JobOp.ALLGATHER if len(self._members) > 1:
                self._all_gather(part, batch)
            case JobOp.GATHER:
                for owner, span in self._runs(whole):
                    self._pass(owner, receiver, span)
            case JobOp.SCATTER:
                for owner, span in self._runs(whole):
                    self._pass(sender, owner, span)
            case JobOp.SEND:
                self._pass(sender, receiver, whole)

    def _reduce(self, whole: _Span, root: int) -> None:
        if root != NOBODY:
            self._reduce_to(root, whole)
        elif self._equal(whole):
            own = self._own_run(whole)
            at = self._read(whole)
            to, length = self._work(own), self._length(own)
            self._add(0, Kind.REDUCE_SCATTER, at, to, length, reads=[whole], writes=[own])
        else:
            for owner, span in self._runs(whole):
                self._reduce_to(owner, span)

    def _reduce_to(self, root: int, span: _Span) -> None:
        at, mine = self._read(span), root == self._rank
        to, writes = (self._work(span), [span]) if mine else (_HERE, [])
        peer, length = self._members.index(root), self._length(span)
        self._add(0, Kind.REDUCE, at, to, length, peer=peer, reads=[span], writes=writes)

    def _broadcast(self, whole: _Span, root: int) -> None:
        if root != NOBODY:
            self._broadcast_from(root, whole)
        elif self._equal(whole):
            own = self._own_run(whole)
            at, to = self._read(own), self._work(whole)
            length = self._length(own)
            self._add(0, Kind.ALL_GATHER, at, to, length, reads=[own], writes=[whole])
        else:
            for owner, span in self._runs(whole):
                self._broadcast_from(owner, span)

    def _broadcast_from(self, root: int, span: _Span) -> None:
        peer, length = self._members.index(root), self._length(span)
        if root == self._rank:
            at = self._read(span)
            self._add(0, Kind.BROADCAST, at, at, length, peer=peer, reads=[span])
        else:
            to = self._work(span)
            self._add(0, Kind.BROADCAST, to, to, length, peer=peer, writes=[span])

    def _all_gather(self, slot: int, batch: int) -> None:
        def of(rank: int) -> _Span:
            return _Span(rank * self._per + slot, batch, 0, self._pieces)

        own, length = of(self._rank), self._length(of(self._rank))
        spans = [of(rank) for rank in self._members]
        at = self._read(own)
        first = self._members[0]
        in_a_row = self._members == list(range(first, first + len(self._members)))
        if in_a_row and length == self._count:
            places = [self._work(span) for span in spans]
            to = places[0]
            self._add(0, Kind.ALL_GATHER, at, to, length, reads=[own], writes=spans)
            return
        stage = self._reserve(length * len(spans))
        self._add(0, Kind.ALL_GATHER, at, stage, length, reads=[own])
        for k, span in enumerate(spans):
            if span != own:
                begin = (stage[0], stage[1] + k * length)
                self._add(0, Kind.COPY, begin, self._work(span), length, writes=[span])

    def _pass(self, source: int, target: int, span: _Span) -> None:
        """Passes pieces between two ranks of the vendor cluster, by its library or as messages."""
        if source == target or self._rank not in (source, target):
            return
        length = self._length(span)
        if self._no_sends:
            self._message(source, target, span, length)
        elif self._rank == source:
            at, peer = self._read(span), self._members.index(target)
            self._add(0, Kind.SEND, at, _HERE, length, peer=peer, reads=[span])
        else:
            to, peer = self._work(span), self._members.index(source)
            self._add(0, Kind.RECEIVE, _HERE, to, length, peer=peer, writes=[span])

    def _message(self, source: int, target: int, span: _Span, length: int) -> None:
        if self._rank == source:
            lane, at = self._lane(target, out=True), self._read(span)
            self._add(
                lane, Kind.HOP_SEND, at, _HERE, length, peer=target, reads=[span], within=True
            )
        else:
            lane, to = self._lane(source, out=False), self._work(span)
            self._add(
                lane, Kind.HOP_RECEIVE, _HERE, to, length, peer=source, writes=[span], within=True
            )

    def _hop(
        self, whole: _Span, src: int, dst: int, sender: int, receiver: int, reduces: bool
    ) -> None:
        for source, target, first, end in self._messages(src, dst, sender, receiver):
            if self._rank not in (source, target):
                continue
            span = _Span(whole.part, whole.batch, first, end)
            length = self._length(span)
            if self._rank == source:
                lane, at = self._lane(target, out=True), self._read(span)
                self._add(lane, Kind.HOP_SEND, at, _HERE, length, peer=target, reads=[span])
                continue
            lane = self._lane(source, out=False)
            if not reduces:
                to = self._work(span)
                self._add(lane, Kind.HOP_RECEIVE, _HERE, to, length, peer=source, writes=[span])
                continue
            there, came = self._read(span), (JobBuffer.ARRIVED, self._arrived)
            self._arrived += length
            self._add(lane, Kind.HOP_RECEIVE, _HERE, came, length, peer=source)
            to = self._work(span)
            self._add(lane, Kind.ADD, there, to, length, with_=came, reads=[span], writes=[span])

    def finish(self) -> None:
        """Copies to the receive buffer what must end there and was never written."""
        self._step = -1
        for part in range(self._job.collective.n_chunks):
            if not self._wants[part]:
                continue
            for batch in range(self._batches):
                for span in self._alike(_Span(part, batch, 0, self._pieces)):
                    if next(span.pieces()) not in self._written:
                        self._bring(span)

    def _bring(self, span: _Span) -> None:
        """Copies input to where work is; in place it is there."""
        at, to = self._input_at(span), self._work(span)
        if not (self._in_place and self._wants[span.part] and at[0] == JobBuffer.INPUT):
            self._add(0, Kind.COPY, at, to, self._length(span), reads=[span], writes=[span])

    def _alike(self, span: _Span) -> Iterator[_Span]:
        """Cuts a span into pieces that are all input, or all work."""
        keys = list(span.pieces())
        for _, group in groupby(keys, lambda key: key in self._written):
            some = list(group)
            yield _Span(span.part, span.batch, some[0][2], some[-1][2] + 1)

    def _read(self, span: _Span) -> _At:
        """Returns where pieces are. Where some are input and others work, all become work."""
        alike = list(self._alike(span))
        if len(alike) > 1:
            for some in alike:
                if next(some.pieces()) not in self._written:
                    self._bring(some)
            self._written.update(span.pieces())
        work = next(span.pieces()) in self._written
        return self._work_of(span) if work else self._input_at(span)

    def _input_at(self, span: _Span) -> _At:
        buffer, at = self._input
        return buffer, at + self._in_block[span.part] * self._count + self._range(span)[0]

    def _work(self, span: _Span) -> _At:
        """Returns where pieces are written, which then are work."""
        self._written.update(span.pieces())
        return self._work_of(span)

    def _work_of(self, span: _Span) -> _At:
        part, begin = span.part, self._range(span)[0]
        if self._wants[part]:
            return JobBuffer.OUTPUT, self._out_block[part] * self._count + begin
        low, high = self._part_range(part)
        if part not in self._work_at:
            self._work_at[part] = self._reserve(high - low)[1] - low
        return JobBuffer.SCRATCH, self._work_at[part] + begin

    def _reserve(self, length: int) -> _At:
        at, self._scratch = self._scratch, self._scratch + length
        return JobBuffer.SCRATCH, at

    def _part_range(self, part: int) -> tuple[int, int]:
        slot = part % self._per
        return self._count * slot // self._per, self._count * (slot + 1) // self._per

    def _range(self, span: _Span) -> tuple[int, int]:
        """Returns the elements of pieces in their block."""
        low, high = self._part_range(span.part)
        length = high - low
        begin = low + length * span.batch // self._batches
        length = low + length * (span.batch + 1) // self._batches - begin
        (a, b), (c, d) = self._cuts[span.first], self._cuts[span.end]
        return begin + length * a // b, begin + length * c // d

    def _length(self, span: _Span) -> int:
        begin, end = self._range(span)
        return end - begin

    def _runs(self, whole: _Span) -> Iterator[tuple[int, _Span]]:
        """Yields the border ranks of this rank's vendor cluster with their pieces, in a row."""
        for owner, first, end in _runs(self._owners[self._own]):
            yield owner, _Span(whole.part, whole.batch, first, end)

    def _own_run(self, whole: _Span) -> _Span:
        return next(span for owner, span in self._runs(whole) if owner == self._rank)

    def _equal(self, whole: _Span) -> bool:
        """Tells whether the ranks of the vendor cluster have equal pieces, in their order."""
        return self._all_border and self._length(whole) % len(self._members) == 0

    @cached_property
    def _all_border(self) -> bool:
        v, c = self._job.clusters, self._own
        weight = v.weight[v.borders.ptr[c] : v.borders.ptr[c + 1]]
        return v.border(c) == self._members and bool((weight == weight[0]).all())

    def _messages(
        self, src: int, dst: int, sender: int, receiver: int
    ) -> list[tuple[int, int, int, int]]:
        """Returns what a step moves over a border: from, to, first and end of the pieces."""
        key = (src, dst, sender, receiver)
        if key not in self._crossing:
            near = self._owners[src] if sender == NOBODY else [sender] * self._pieces
            far = self._owners[dst] if receiver == NOBODY else [receiver] * self._pieces
            pairs = list(zip(near, far, strict=True))
            self._crossing[key] = [(*pair, first, end) for pair, first, end in _runs(pairs)]
        return self._crossing[key]

    def _lane(self, peer: int, out: bool) -> int:
        if not self._several:
            return 0
        key = (peer, out)
        if key not in self._lane_of:
            self._lane_of[key] = len(self._lanes)
            self._lanes.append([])
            self._waits.append([])
        return self._lane_of[key]

    def _add(
        self,
        lane: int,
        kind: Kind,
        at: _At,
        to: _At,
        length: int,
        *,
        with_: _At = _HERE,
        peer: int = 0,
        reads: Iterable[_Span] = (),
        writes: Iterable[_Span] = (),
        within: bool = False,
    ) -> _Done | None:
        """Adds a task, with waits for what wrote or uses its pieces; none without elements."""
        if not length:
            return self._first
        read = [key for span in reads for key in span.pieces()]
        written = [key for span in writes for key in span.pieces()]
        after = [self._writer.get(key, self._first) for key in (*read, *written)]
        after += [done for key in written for done in self._readers[key]]
        waits: dict[int, int] = {}
        for other, task in (done for done in after if done is not None):
            if other != lane:
                waits[other] = max(waits.get(other, 0), task + 1)
        # In an ordered list nothing goes together: what comes between would wait.
        group = self._group if self._several else len(self._lanes[lane]) + 1
        row = [kind, self._step, peer, group, at[0], with_[0], to[0], int(within)]
        row += [at[1], with_[1], to[1], length, 0, len(waits)]
        done = (lane, len(self._lanes[lane]))
        self._lanes[lane].append(row)
        self._waits[lane].append(waits)
        for key in read:
            self._readers[key].append(done)
        for key in written:
            self._writer[key] = done
            self._readers[key] = []
        return done

    def schedule(self) -> JobSchedule:
        """Returns all tasks, lane after lane."""
        rows = [tuple(row) for lane in self._lanes for row in lane]
        tasks = np.array(rows, TASK).reshape(-1)
        waits = [wait for lane in self._waits for of in lane for wait in of.items()]
        ends = np.cumsum(tasks["n_waits"])
        tasks["first_wait"] = ends - tasks["n_waits"]
        begin = np.cumsum([0, *map(len, self._lanes)])
        c = self._job.collective
        output = c.output_blocks(self._rank) * self._count
        return JobSchedule(
            tasks,
            begin.astype(np.int64),
            np.array(waits, WAIT).reshape(-1),
            self._scratch,
            self._arrived,
            output,
        )


def _runs(values: list[Any]) -> Iterator[tuple[Any, int, int]]:
    """Yields each run of equal values, with its first entry and its end."""
    at = 0
    for value, group in groupby(values):
        end = at + len(list(group))
        yield value, at, end
        at = end
