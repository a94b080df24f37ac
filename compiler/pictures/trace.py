"""trace: a Run as Chrome trace events, which Perfetto and chrome://tracing open.

A process is a rank, a thread one of its thread blocks, or its proxy's work for one block and peer.
Every primitive is a slice, in it for each micro-batch one of waiting and one of work; slices of a
thread nest. A proxy's slices are the bytes of one transfer on the links. Counters show the rates of
the busiest links. Events are written one by one: nothing is held that grows with the Run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TextIO

import numpy as np

from hccc.ir.arrays import starts
from hccc.network.resource_names import names
from hccc.pictures import chrome
from hccc.pictures.carriage import Carriage, carriage
from hccc.pictures.chrome import Event
from hccc.pictures.primitive_text import LOOKS, PrimitiveRole, PrimitiveText, primitive_text, spans
from hccc.sim.simulate import Run

EVENTS = 400_000  # more than this, and micro-batches are merged, then ranks left out
LINKS, POINTS = 8, 2_000


@dataclass(frozen=True, slots=True)
class _Scope:
    """The part of a Run to write: the first `ranks`, micro-batches or (`merged`) only their
    primitives.

    pid: the first process; at: ns of the call's beginning.
    """

    ranks: int
    merged: bool
    notes: tuple[str, ...]
    pid: int = 0
    at: int = 0

    def ns(self, us: float) -> int:
        """Returns a time of the call in ns."""
        return self.at + round(float(us) * 1000)


def write(run: Run, out: TextIO, most: int = EVENTS) -> int:
    """Writes the trace as one JSON object; returns the number of events. O(text written)."""
    scope = _scope(run, most)
    plan = run.machine.plan
    about = {
        "tool": "hccc",
        "algorithm": plan.name,
        "source": plan.source,
        "bytes": run.size,
        "time_us": run.time,
        "busbw_GBps": run.busbw,
        "micro_batches": run.batches,
        "notes": list(scope.notes),
        **({"launch_us": run.launch} if run.launch else {}),  # before the first slice
    }
    return chrome.write(about, _events(run, scope), out)


def events(run: Run, pid: int, at: int, most: int = EVENTS) -> Iterator[Event | str]:
    """Yields the same events, to stand beside others: from process `pid` and from time `at` (ns)
    on."""
    return _events(run, replace(_scope(run, most), pid=pid, at=at))


def _scope(run: Run, most: int) -> _Scope:
    plan = run.machine.plan
    notes = [f"one of {plan.channels} channels; all are alike"] if plan.channels > 1 else []
    windows = -(-run.batches // run.window)
    per_primitive = windows + 2 * run.batches
    carried = int(run.machine.transfers.carries.sum()) * run.batches  # by proxies, of all ranks
    merged = len(plan) * per_primitive + carried > most and run.batches > 1
    if merged:
        per_primitive, carried = 3 * windows, carried // run.batches * windows
        notes.append("micro-batches of a primitive are merged: the run has too many")
    per_primitive += -(-carried // max(len(plan), 1))
    first = plan.tb_ptr[starts(plan.n_tb)]
    ranks = int(np.searchsorted(first * per_primitive, most, side="right")) - 1
    ranks = min(max(ranks, 1), plan.n_ranks)
    if ranks < plan.n_ranks:
        notes.append(f"ranks 0 to {ranks - 1} of {plan.n_ranks}")
    return _Scope(ranks, merged, tuple(notes))


def _events(run: Run, scope: _Scope) -> Iterator[Event | str]:
    plan, texts = run.machine.plan, primitive_text(run.machine.plan)
    carried = carriage(run, merged=scope.merged)
    block = 0
    for rank in range(scope.ranks):
        device = run.machine.topology.devices[run.machine.topology.device[rank]].name
        pid = scope.pid + rank
        yield chrome.named("process_name", pid, 0, f"rank {rank} ({device})")
        yield chrome.meta("process_sort_index", pid, 0, {"sort_index": rank})
        for tb in range(int(plan.n_tb[rank])):
            yield chrome.named("thread_name", pid, tb, f"thread block {tb}")
            rows = np.arange(plan.tb_ptr[block], plan.tb_ptr[block + 1])
            yield from _block(run, texts, scope, (pid, tb), rows)
            block += 1
        yield from _proxy(run, texts, scope, int(plan.n_tb[rank]), carried.of(rank))
    yield from _counters(run, scope, scope.pid + plan.n_ranks)


def _block(
    run: Run, texts: PrimitiveText, scope: _Scope, at: tuple[int, int], rows: Any
) -> Iterator[Event | str]:
    """Yields the slices of a block: primitives, in each its waits and its work."""
    found = spans(rows, run.batches, run.window)
    for p, first, last in zip(
        found.primitive.tolist(), found.first.tolist(), found.last.tolist(), strict=True
    ):
        begin, end = scope.ns(run.begin[first]), scope.ns(run.end[last])
        yield chrome.slice(
            texts.text(p), at, begin, end, "primitive", _args(run, texts, p, first, last)
        )
        steps = [(first, last)] if scope.merged else [(i, i) for i in range(first, last + 1)]
        name = LOOKS[PrimitiveRole(int(texts.kind[p]))][0]
        for a, b in steps:
            start, ready, done = map(scope.ns, (run.begin[a], run.ready[a], run.end[b]))
            if ready > start:
                yield chrome.slice("wait", at, start, ready, "wait", _cause(run, texts, a))
            if done > ready:
                yield chrome.slice(name, at, ready, done, "work", {"micro_batch": a % run.batches})


def _proxy(
    run: Run, texts: PrimitiveText, scope: _Scope, first: int, found: Carriage
) -> Iterator[Event | str]:
    """Yields the transfers of one rank's proxy: a thread for each peer and thread block that hands
    over.

    first: the number of the first thread.
    """
    plan = texts.plan
    block = np.searchsorted(plan.tb_ptr, found.primitive, side="right") - 1
    key = found.peer * (len(plan.tb_ptr) + 1) + block
    _, some, thread = np.unique(key, return_index=True, return_inverse=True)
    own = int(plan.n_tb[: int(found.rank[0])].sum()) if len(found) else 0
    for k, i in enumerate(some.tolist()):
        name = f"proxy, to rank {found.peer[i]} of thread block {block[i] - own}"
        yield chrome.named("thread_name", scope.pid + int(found.rank[0]), first + k, name)
    for i in range(len(found)):
        p, at = int(found.primitive[i]), (scope.pid + int(found.rank[i]), first + int(thread[i]))
        size = run.bytes(p, np.arange(found.first[i], found.last[i] + 1)).sum()
        args = {
            "for": texts.text(p),
            "bytes": round(float(size)),
            "micro_batch": int(found.first[i]),
            "arrives": round(float(found.arrival[i]), 3),
        }
        begin, end = scope.ns(found.begin[i]), scope.ns(found.end[i])
        yield chrome.slice(f"carry chunk {texts.plan.chunk[p]}", at, begin, end, "network", args)


def _args(run: Run, texts: PrimitiveText, p: int, first: int, last: int) -> Event:
    plan = texts.plan
    batches = last - first + 1
    size = float(run.bytes(p, np.arange(first, last + 1) % run.batches).sum())
    found: Event = {
        "chunk": int(plan.chunk[p]),
        "sub-pipeline": int(plan.sub[p]),
        "bytes": round(size),
        "micro-batches": batches,
    }
    return found | chrome.peers(texts, p)


def _cause(run: Run, texts: PrimitiveText, instance: int) -> Event:
    """Returns the primitive that ended a wait."""
    cause = int(run.cause[instance])
    if cause < 0:
        return {}
    p = cause // run.batches
    proxy = run.via[instance] >= 0 and not run.machine.transfers.packets
    way = ", by its proxy" if proxy else ""
    return {"for": f"rank {texts.rank[p]}: {texts.text(p)}{way}"}


def _counters(run: Run, scope: _Scope, pid: int) -> Iterator[Event]:
    """Yields the GB/s over the busiest links: all channels, averaged over each transfer."""
    machine = run.machine
    links = np.flatnonzero(machine.links & (run.carried > 0))
    top = links[np.argsort(-run.utilisation[links], kind="stable")][:LINKS]
    if not len(top):
        return
    yield chrome.named("process_name", pid, 0, "busiest links")
    for resource, name in zip(
        top.tolist(), names(machine.topology, machine.resource[top]), strict=True
    ):
        at, rate = _rates(*_movements(run, resource))
        for us, value in zip(at.tolist(), rate.tolist(), strict=True):
            args = {"GB/s": round(value, 3)}
            yield {
                "name": name,
                "ph": "C",
                "ts": round(us + scope.at / 1000, 3),
                "pid": pid,
                "args": args,
            }


def _movements(run: Run, resource: int) -> tuple[Any, Any, Any]:
    """Returns the times when a transfer crossed a resource, from and until, and its bytes: f8[n]
    each."""
    machine, carried = run.machine, run.machine.transfers
    uses = np.flatnonzero(machine.uses.index == resource)
    p = machine.uses.owner()[uses]
    instance = (p[:, None] * run.batches + np.arange(run.batches)).ravel()
    size = run.bytes(p[:, None], np.arange(run.batches))
    sent = ((machine.weight[uses] * run.moves[p])[:, None] * size).ravel()
    over = np.zeros(len(carried.src), np.bool_)
    over[carried.uses.owner()[carried.uses.index == resource]] = True
    moves = carried.carries & run.moves[carried.owner] & over[carried.pair]
    items = run.carriage[moves[run.carriage["transfer"]]]
    return (
        np.concatenate([run.ready[instance], items["begin"]]),
        np.concatenate([run.end[instance], items["end"]]),
        np.concatenate(
            [
                sent,
                machine.plan.channels * run.bytes(carried.owner[items["transfer"]], items["batch"]),
            ]
        ),
    )


def _rates(ready: Any, end: Any, sent: Any) -> tuple[Any, Any]:
    """Returns times (µs) and the GB/s from each on."""
    long = end > ready
    ready, end, speed = ready[long], end[long], sent[long] / (end - ready)[long] / 1000
    at = np.concatenate([ready, end])
    change = np.concatenate([speed, -speed])
    order = np.argsort(at, kind="stable")
    at, rate = at[order], np.cumsum(change[order])
    last = np.flatnonzero(np.r_[np.diff(at) > 1e-9, len(at) > 0][: len(at)])
    at, rate = at[last], np.maximum(rate[last], 0.0)
    every = max(1, -(-len(at) // POINTS))
    return at[::every], rate[::every]
