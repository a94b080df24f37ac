"""chunk_classes: finds the chunks of a Dag that are alike: their tasks differ only in ranks' names.

The tasks of a chunk are written down with every rank replaced by the place where it first occurs,
and every predecessor by its place. Chunks with equal texts are isomorphic, and the ranks that stand
in equal places are the isomorphism. Texts depend on the order of tasks, so classes that the table's
order keeps apart are compared once more in an order that follows the dependencies. Both are sound;
a chunk that neither puts together is counted on its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.ir.arrays import I8, places_among
from hccc.ir.dag import Dag

Text = NDArray[np.int32]
BLOCK = 1 << 22  # elements at a time
TRAVERSED = 60_000  # tasks that are traversed at most
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ChunkClass:
    """Chunks that are alike, ascending. `tasks`: i8 of the first, in table order."""

    chunks: tuple[int, ...]
    tasks: I8


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The Dag by chunk.

    Row r has the tasks `order[start[r]:start[r + 1]]`. Their predecessors are `preds[edge[r]:edge[r
    + 1]]`: for one task after the other, `n_preds` places in that list.
    """

    dag: Dag
    order: I8
    start: I8
    n_preds: I8
    preds: I8
    edge: I8


def chunk_classes(dag: Dag) -> list[ChunkClass]:
    """Returns the chunks of `dag` that any task moves, in classes, the largest first.

    O(tasks log tasks), whole arrays at a time; one traversal for each class of the first round.
    """
    if not len(dag):
        return []
    c = _by_chunk(dag)
    classes: dict[bytes, list[I8]] = {}
    for key, rows in _texts(c):
        classes.setdefault(key, []).append(rows)
    merged: dict[bytes, list[I8]] = {}
    left = TRAVERSED
    for key, members in sorted(classes.items(), key=lambda item: int(item[1][0][0])):
        row = int(members[0][0])
        left -= int(c.start[row + 1] - c.start[row])
        merged.setdefault(_traversed(c, row) if left >= 0 else key, []).extend(members)
    chunk = dag.program.transfers["chunk"]
    found = []
    for members in merged.values():
        rows = np.sort(np.concatenate(members))
        tasks = c.order[c.start[rows[0]] : c.start[rows[0] + 1]]
        found.append(ChunkClass(tuple(chunk[c.order[c.start[rows]]].tolist()), tasks))
    return sorted(found, key=lambda s: (-len(s.chunks), s.chunks[0]))


def _by_chunk(dag: Dag) -> _Chunks:
    chunk = dag.program.transfers["chunk"]
    order = np.argsort(chunk, kind="stable")
    start = np.flatnonzero(np.r_[True, np.diff(chunk[order]) != 0, True])
    place = places_among(chunk)
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    by_task = np.lexsort((place[dag.preds.index], position[dag.preds.owner()]))
    n_preds = dag.preds.counts()[order]
    edge = np.r_[0, np.cumsum(n_preds)][start]
    return _Chunks(dag, order, start, n_preds, place[dag.preds.index[by_task]], edge)


def _texts(c: _Chunks) -> Iterator[tuple[bytes, I8]]:
    """Yields digests of texts, and the rows that have each; rows of one length together."""
    sizes = np.stack([np.diff(c.start), np.diff(c.edge)], 1)
    kinds, kind = np.unique(sizes, axis=0, return_inverse=True)
    kind = kind.ravel()
    for k, (tasks, edges) in enumerate(kinds.tolist()):
        rows = np.flatnonzero(kind == k)
        step = max(BLOCK // (4 * tasks + edges), 1)
        for at in range(0, len(rows), step):
            part = rows[at : at + step]
            ids = c.start[part][:, None] + np.arange(tasks)
            preds = c.preds[c.edge[part][:, None] + np.arange(edges)]
            text = _text(c.dag, c.order[ids], c.n_preds[ids], preds)
            width = text.shape[1] * text.itemsize
            whole = np.ascontiguousarray(text).view(np.dtype((np.void, width))).ravel()
            distinct, which = np.unique(whole, return_inverse=True)
            alike = np.split(part[np.argsort(which, kind="stable")], np.cumsum(np.bincount(which)))
            for text_of, found in zip(distinct, alike, strict=False):
                key = hashlib.sha256(f"{tasks} {edges} ".encode() + text_of.tobytes()).digest()
                yield key, found


def _text(dag: Dag, tasks: I8, n_preds: I8, preds: I8) -> Text:
    """Returns the texts of chunks (rows) whose tasks are given in one order: i4[rows, width]."""
    t = dag.program.transfers
    ranks = np.stack([t["src"][tasks], t["dst"][tasks]], 2).reshape(len(tasks), -1)
    columns = (_first_places(ranks), t["op"][tasks], n_preds, preds)
    return np.concatenate(columns, axis=1).astype(np.int32)


def _first_places(values: NDArray[Any]) -> I8:
    """Replaces every value by the place in its row where it occurs first. O(n log n)."""
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, 1)
    new = np.ones(values.shape, np.bool_)
    new[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    begins = np.maximum.accumulate(np.where(new, np.arange(values.shape[1]), 0), axis=1)
    places = np.empty(values.shape, np.int64)
    np.put_along_axis(places, order, np.take_along_axis(order, begins, 1), 1)
    return places


def _traversed(c: _Chunks, row: int) -> bytes:
    """Returns the digest of one chunk's text in an order that its dependencies give."""
    tasks = c.order[c.start[row] : c.start[row + 1]]
    ends = np.cumsum(c.n_preds[c.start[row] : c.start[row + 1]])
    lists = np.split(c.preds[c.edge[row] : c.edge[row + 1]], ends[:-1])
    preds: list[list[int]] = [part.tolist() for part in lists]
    succs: list[list[int]] = [[] for _ in preds]
    for i, before in enumerate(preds):
        for p in before:
            succs[p].append(i)
    order = _depth_first(preds, succs, c.dag.program.transfers["op"][tasks].tolist())
    place = {task: i for i, task in enumerate(order)}
    again = [sorted(place[p] for p in preds[i]) for i in order]
    numbers = np.array([p for before in again for p in before], np.int64)
    counts = np.array([[len(before) for before in again]])
    text = _text(c.dag, tasks[order][None], counts, numbers[None])
    return hashlib.sha256(f"{len(tasks)} {len(numbers)} ".encode() + text.tobytes()).digest()


def _depth_first(preds: list[list[int]], succs: list[list[int]], ops: list[int]) -> list[int]:
    """Returns all tasks depth first along dependencies, the choices made by colours."""
    colour = _colours(preds, succs, ops)
    seen = [False] * len(ops)
    found: list[int] = []
    for first in sorted(range(len(ops)), key=colour.__getitem__):
        stack = [first]
        while stack:
            i = stack.pop()
            if seen[i]:
                continue
            seen[i] = True
            found.append(i)
            stack += sorted(succs[i], key=colour.__getitem__, reverse=True)
            stack += sorted(preds[i], key=colour.__getitem__, reverse=True)
    return found


def _colours(preds: list[list[int]], succs: list[list[int]], ops: list[int]) -> list[int]:
    """Returns numbers that alike tasks of alike chunks share (Weisfeiler and Leman's
    refinement)."""
    depth = [0] * len(ops)
    for i, before in enumerate(preds):
        depth[i] = 1 + max((depth[p] for p in before), default=-1)
    keys: list[Any] = list(zip(depth, ops, strict=True))
    colour = _numbered(keys)
    for _ in range(ROUNDS):
        keys = [
            (colour[i], sorted(colour[p] for p in preds[i]), sorted(colour[s] for s in succs[i]))
            for i in range(len(ops))
        ]
        finer = _numbered([(a, tuple(b), tuple(c)) for a, b, c in keys])
        if max(finer) == max(colour):
            break
        colour = finer
    return colour


def _numbered(keys: list[Any]) -> list[int]:
    number = {key: i for i, key in enumerate(sorted(set(keys)))}
    return [number[key] for key in keys]
