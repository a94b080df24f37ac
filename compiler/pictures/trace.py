"""A Run as Chrome trace events, which Perfetto and chrome://tracing open.

A process is a rank, a thread one of its thread blocks. Every primitive is a slice, in it for each
micro-batch one of waiting and one of work; slices of a thread nest. Counters tell how fast the
busiest links were. Events are written one by one: nothing is held that grows with the Run.

Source: Chrome's Trace Event Format ("X" complete, "C" counter and "M" metadata events).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from hccc.ir.arrays import starts
from hccc.network.resource_names import names
from hccc.pictures.primitive_text import LOOKS, Kind, PrimitiveText, primitive_text, spans
from hccc.sim.simulate import Run

Event = dict[str, Any]
EVENTS = 400_000  # more than this, and micro-batches are merged, then ranks left out
LINKS, POINTS = 8, 2_000


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is written: `ranks` first ranks, micro-batches or (`merged`) only their primitives."""

    ranks: int
    merged: bool
    notes: tuple[str, ...]


def write(run: Run, out: TextIO, most: int = EVENTS) -> int:
    """Writes the trace as one JSON object; returns how many events. O(what is written)."""
    scope = _scope(run, most)
    plan = run.machine.plan
    about = {
        "tool": "hccc", "algorithm": plan.name, "source": plan.source, "bytes": run.size,
        "time_us": run.time, "busbw_GBps": run.busbw, "micro_batches": run.batches,
        "notes": list(scope.notes),
        **({"launch_us": run.launch} if run.launch else {}),  # before the first slice
    }  # fmt: skip
    out.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
    count = 0
    for event in _events(run, scope):
        out.write(",\n" if count else "")
        out.write(event if isinstance(event, str) else json.dumps(event, separators=(",", ":")))
        count += 1
    out.write("\n]}\n")
    return count


def _scope(run: Run, most: int) -> _Scope:
    plan = run.machine.plan
    notes = [f"one of {plan.channels} channels; all are alike"] if plan.channels > 1 else []
    windows = -(-run.batches // run.window)
    per_primitive = windows + 2 * run.batches
    merged = len(plan) * per_primitive > most and run.batches > 1
    if merged:
        per_primitive = 3 * windows
        notes.append("micro-batches of a primitive are merged: the run has too many")
    first = plan.tb_ptr[starts(plan.n_tb)]
    ranks = int(np.searchsorted(first * per_primitive, most, side="right")) - 1
    ranks = min(max(ranks, 1), plan.n_ranks)
    if ranks < plan.n_ranks:
        notes.append(f"ranks 0 to {ranks - 1} of {plan.n_ranks}")
    return _Scope(ranks, merged, tuple(notes))


def _events(run: Run, scope: _Scope) -> Iterator[Event | str]:
    plan, texts = run.machine.plan, primitive_text(run.machine.plan)
    block = 0
    for rank in range(scope.ranks):
        device = run.machine.topology.devices[run.machine.topology.device[rank]].name
        yield _named("process_name", rank, 0, f"rank {rank} ({device})")
        yield _meta("process_sort_index", rank, 0, {"sort_index": rank})
        for tb in range(int(plan.n_tb[rank])):
            yield _named("thread_name", rank, tb, f"thread block {tb}")
            rows = np.arange(plan.tb_ptr[block], plan.tb_ptr[block + 1])
            yield from _block(run, texts, scope, (rank, tb), rows)
            block += 1
    yield from _counters(run, plan.n_ranks)


def _block(
    run: Run, texts: PrimitiveText, scope: _Scope, at: tuple[int, int], rows: Any
) -> Iterator[Event | str]:
    """The slices of a block: primitives, in each its waits and its work."""
    found = spans(rows, run.batches, run.window)
    for p, first, last in zip(
        found.primitive.tolist(), found.first.tolist(), found.last.tolist(), strict=True
    ):
        begin, end = _ns(run.begin[first]), _ns(run.end[last])
        yield _slice(texts.text(p), at, begin, end, "primitive", _args(run, texts, p, first, last))
        steps = [(first, last)] if scope.merged else [(i, i) for i in range(first, last + 1)]
        name = LOOKS[Kind(int(texts.kind[p]))][0]
        for a, b in steps:
            start, ready, done = _ns(run.begin[a]), _ns(run.ready[a]), _ns(run.end[b])
            if ready > start:
                yield _slice("wait", at, start, ready, "wait", _cause(run, texts, a))
            if done > ready:
                yield _slice(name, at, ready, done, "work", {"micro_batch": a % run.batches})


def _ns(us: float) -> int:
    return round(float(us) * 1000)


def _us(ns: int) -> str:
    """Nanoseconds as decimal µs, exactly: children end where their parents do."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _slice(name: str, at: tuple[int, int], begin: int, end: int, category: str, args: Event) -> str:
    return (
        f'{{"name":{json.dumps(name)},"cat":"{category}","ph":"X","ts":{_us(begin)},'
        f'"dur":{_us(end - begin)},"pid":{at[0]},"tid":{at[1]},"args":{json.dumps(args)}}}'
    )


def _args(run: Run, texts: PrimitiveText, p: int, first: int, last: int) -> Event:
    plan = texts.plan
    batches = last - first + 1
    short = last % run.batches == run.batches - 1
    size = run.payload * (batches - short) + (run.last if short else 0.0)
    found: Event = {
        "chunk": int(plan.chunk[p]), "sub-pipeline": int(plan.sub[p]),
        "bytes": round(size), "micro-batches": batches,
    }  # fmt: skip
    if place := texts.place(p):
        found["source"] = place
    for key, peers in (("from", texts.sources), ("to", texts.targets)):
        if len(ranks := peers.row(p).tolist()):
            found[key] = ranks[:16]
    return found


def _cause(run: Run, texts: PrimitiveText, instance: int) -> Event:
    """Who ended a wait."""
    cause = int(run.cause[instance])
    if cause < 0:
        return {}
    p = cause // run.batches
    return {"for": f"rank {texts.rank[p]}: {texts.text(p)}"}


def _meta(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _named(name: str, pid: int, tid: int, text: str) -> Event:
    return _meta(name, pid, tid, {"name": text})


def _counters(run: Run, pid: int) -> Iterator[Event]:
    """GB/s over the busiest links: all channels, averaged over each transfer."""
    machine = run.machine
    links = np.flatnonzero(machine.links & (run.carried > 0))
    top = links[np.argsort(-run.utilisation[links], kind="stable")][:LINKS]
    if not len(top):
        return
    yield _named("process_name", pid, 0, "busiest links")
    owner = machine.uses.owner()
    for resource, name in zip(
        top.tolist(), names(machine.topology, machine.resource[top]), strict=True
    ):
        uses = np.flatnonzero(machine.uses.index == resource)
        weight = machine.weight[uses] * run.moves[owner[uses]]
        at, rate = _rates(run, owner[uses], weight)
        for us, value in zip(at.tolist(), rate.tolist(), strict=True):
            args = {"GB/s": round(value, 3)}
            yield {"name": name, "ph": "C", "ts": round(us, 3), "pid": pid, "args": args}


def _rates(run: Run, primitives: Any, weight: Any) -> tuple[Any, Any]:
    """Times (µs) and the GB/s from each on."""
    size = np.full(run.batches, run.payload)
    size[-1] = run.last
    instance = (primitives[:, None] * run.batches + np.arange(run.batches)).ravel()
    sent = (weight[:, None] * size).ravel()
    ready, end = run.ready[instance], run.end[instance]
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
