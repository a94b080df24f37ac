"""launch_trace: recorded launches as Chrome trace events; `trace` writes predicted ones.

Processes, threads and the names of slices are those of the predicted timeline: a process is a rank,
a thread a thread block, of each channel; every primitive is a slice, in it for each micro-batch one
of waiting and one of work. Launches follow each other without the time between them; one more
process shows where each begins. On a cluster, the prediction for each stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from hccc.analysis.waits import enforced
from hccc.ir.arrays import I4, I8, starts
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands
from hccc.pictures import chrome, trace
from hccc.pictures.chrome import Event
from hccc.pictures.primitive_text import LOOKS, PrimitiveRole, PrimitiveText, primitive_text
from hccc.sim.simulate import Run

_APART_NS = 1_000  # between launches
_MOST_PLACES = 4  # of data that an event lists


@dataclass(frozen=True, slots=True, eq=False)
class RecordedLaunch:
    """n records of a launch of `plan`, block by block, each in its order.

    about: shown by a viewer; in_place; size: bytes of an element, count: elements of a block, part
    and micro: of a channel's part of a chunk and of a micro-batch; batches, window: micro-batches;
    rank, block (thread block times channels, plus channel): i4[n]; primitive (inside the thread
    block), micro_batch, begin, ready, end (ns of one clock): i8[n]; lost: records without room;
    predicted: the same call on a cluster.
    """

    plan: Plan
    about: Event
    in_place: bool
    size: int
    count: int
    part: int
    micro: int
    batches: int
    window: int
    rank: I4
    block: I4
    primitive: I8
    micro_batch: I8
    begin: I8
    ready: I8
    end: I8
    lost: int
    predicted: Run | None = None

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def channel(self) -> I8:
        """The channel of each record: i8[n]."""
        return self.block.astype(np.int64) % self.plan.channels

    @property
    def thread_block(self) -> I8:
        """The thread block of each record, numbered in its rank: i8[n]."""
        return self.block.astype(np.int64) // self.plan.channels

    @property
    def row(self) -> I8:
        """The primitive of the plan that each record is of: i8[n]."""
        first = starts(self.plan.n_tb)[self.rank] + self.thread_block
        return np.asarray(self.plan.tb_ptr[first] + self.primitive, np.int64)

    def moved(self) -> I8:
        """Returns the bytes of each record's micro-batch: i8[n]."""
        plan, row = self.plan, self.row
        sub = plan.chunk[row] % plan.collective.chunks_per_block
        first = (sub * plan.channels + self.channel) * self.part + self.micro_batch * self.micro
        end = np.minimum((sub * plan.channels + self.channel + 1) * self.part, self.count)
        idle = Guard.OUT_OF_PLACE if self.in_place else Guard.IN_PLACE
        elements = np.clip(end - first, 0, self.micro) * (plan.guard[row] != idle)
        return np.asarray(elements * self.size, np.int64)


def causes(launch: RecordedLaunch) -> I8:
    """Returns the primitive whose flag or message was the last to come and ended each record's
    wait: i8[n].

    -1 for none, or if it is not recorded. O(records times waits of a primitive).
    """
    plan, row, found = launch.plan, launch.row, enforced(launch.plan)
    instance = (row * plan.channels + launch.channel) * launch.batches + launch.micro_batch
    ended = np.full(len(plan) * plan.channels * launch.batches, -1, np.int64)
    ended[instance] = launch.end
    last, cause = launch.begin.copy(), np.full(len(launch), -1, np.int64)
    counts = found.counts()[row]
    for k in range(int(counts.max(initial=0))):
        some = np.flatnonzero(counts > k)
        producer = found.index[found.ptr[row[some]] + k].astype(np.int64)
        instance = (producer * plan.channels + launch.channel[some]) * launch.batches
        end = ended[instance + launch.micro_batch[some]]
        later = end > last[some]
        last[some[later]], cause[some[later]] = end[later], producer[later]
    return cause


def write(launches: Sequence[RecordedLaunch], out: TextIO) -> int:
    """Writes launches as one JSON object; returns the number of events. O(text written)."""
    lost = sum(one.lost for one in launches)
    about = {
        "tool": "hccc",
        "recorded": True,
        "launches": len(launches),
        "algorithm": _each(one.plan.name for one in launches),
        "source": _each(one.plan.source for one in launches),
        "notes": [f"{lost} records lost: thread blocks kept the latest"] if lost else [],
    }
    return chrome.write(about, events(launches), out)


def _each(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def events(launches: Sequence[RecordedLaunch]) -> Iterator[Event | str]:
    """Yields all events, of the launches one after the other."""
    if not launches:
        return
    threads = max(int(one.plan.n_tb.max(initial=0)) for one in launches)
    yield from _names(launches, threads)
    n_ranks, at = launches[0].plan.n_ranks, 0
    yield chrome.named("process_name", n_ranks + 1, 0, "launches")
    for one in launches:
        if not len(one):
            continue
        first, last = int(one.begin.min()), int(one.end.max())
        args = {**one.about, "clock_ns": first, "lost": one.lost}
        name = f"launch of {one.plan.name}"
        yield chrome.slice(name, (n_ranks + 1, 0), at, at + last - first, "launch", args)
        yield from _slices(one, threads, at - first)
        took = last - first
        if one.predicted:
            yield from trace.events(one.predicted, n_ranks + 2, at)
            took = max(took, round(one.predicted.finish * 1000))
        at += took + _APART_NS


def _names(launches: Sequence[RecordedLaunch], threads: int) -> Iterator[Event]:
    """Yields names of every rank and its thread blocks; thread blocks of further channels are
    numbered after all of the first."""
    channels = max(one.plan.channels for one in launches)
    for rank in range(launches[0].plan.n_ranks):
        yield chrome.named("process_name", rank, 0, f"rank {rank} (recorded)")
        yield chrome.meta("process_sort_index", rank, 0, {"sort_index": rank})
        for tb in range(max(int(one.plan.n_tb[rank]) for one in launches)):
            for channel in range(channels):
                of = f", channel {channel}" if channels > 1 else ""
                at = rank, channel * threads + tb
                yield chrome.named("thread_name", *at, f"thread block {tb}{of}")
                yield chrome.meta("thread_sort_index", *at, {"sort_index": tb * channels + channel})


def _slices(one: RecordedLaunch, threads: int, shift: int) -> Iterator[str]:
    """Yields the slices of all thread blocks: primitives, in each its waits and its work."""
    texts, cause, moved = primitive_text(one.plan), causes(one), one.moved()
    tid = one.channel * threads + one.thread_block
    cut = np.flatnonzero(
        _changes(one.rank, one.block, one.primitive, one.micro_batch // one.window)
    )
    for a, b in zip(cut.tolist(), [*cut[1:].tolist(), len(one)], strict=True):
        p, at = int(one.row[a]), (int(one.rank[a]), int(tid[a]))
        args = _args(texts, p, int(one.channel[a]), int(moved[a:b].sum()), b - a)
        begin, end = int(one.begin[a]) + shift, int(one.end[b - 1]) + shift
        yield chrome.slice(texts.text(p), at, begin, end, "primitive", args)
        name = LOOKS[PrimitiveRole(int(texts.kind[p]))][0]
        for i in range(a, b):
            start, ready, done = (int(t[i]) + shift for t in (one.begin, one.ready, one.end))
            if ready > start:
                yield chrome.slice("wait", at, start, ready, "wait", _cause(texts, int(cause[i])))
            args = {"micro_batch": int(one.micro_batch[i])}
            yield chrome.slice(name, at, ready, done, "work", args)


def _changes(*columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Marks the entries that differ from the one before in any column: b1[n]; the first does."""
    changed = np.ones(len(columns[0]), np.bool_)
    changed[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return changed


def _args(texts: PrimitiveText, p: int, channel: int, moved: int, batches: int) -> Event:
    plan = texts.plan
    return {
        "opcode": texts.verb(p),
        "channel": channel,
        "chunk": int(plan.chunk[p]),
        "sub-pipeline": int(plan.sub[p]),
        "bytes": moved,
        "micro-batches": batches,
        **chrome.peers(texts, p),
        "reads": _places(plan.src, p),
        "writes": _places(plan.dst, p),
    }


def _places(operands: Operands, p: int) -> list[str]:
    """Writes the places of operands: `output 3 of rank 1`, `queue 2, message 0`."""
    found = []
    for k in range(int(operands.ptr[p]), int(operands.ptr[p + 1]))[:_MOST_PLACES]:
        buffer, rank, slot = Buffer(int(operands.buffer[k])), operands.rank[k], operands.slot[k]
        queued = buffer is Buffer.QUEUE
        where = f"queue {rank}, message {slot}" if queued else f"{slot} of rank {rank}"
        found.append(where if queued else f"{buffer.name.lower()} {where}")
    return found


def _cause(texts: PrimitiveText, p: int) -> Event:
    """Returns the primitive that ended a wait."""
    return {"for": f"rank {texts.rank[p]}: {texts.text(p)}"} if p >= 0 else {}
