"""teccl: schedules that TE-CCL has written, as JSON, to programs.

A schedule has under `Chunk paths` how each chunk comes to each rank that demands it:

    "Demand at 4 for chunk 0 from 0 met by epoch 1": ["0->2 in epoch 0", "2->4 in epoch 1 via ..."]
    "Demand at 4 for chunk 3 from 0 met by epoch 2": [[[0, "0->4 with volume 0.5 in epoch 0"]], ...]

The first form is of AllGather, the second of AlltoAll, whose chunks go over several paths, of any
share. An epoch is a step here. Ranks are the GPUs in the order of their numbers, which TE-CCL
counts together with its switches.

Source: TE-CCL (SIGCOMM 2024); https://github.com/microsoft/TE-CCL.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hccc.base.diagnostics import Source, UserError, fail
from hccc.ir.collective import Collective, OpType
from hccc.ir.limits import MAX_CHUNKS, MAX_RANKS
from hccc.ir.program import TRANSFER, Op, Program

MAX_PIECES = 32  # of a chunk that goes over several paths
_EXACT = 1e-3  # of a chunk: shares as TE-CCL prints them are so near to what it means
_HEAD = re.compile(r'\s*{\s*"1-Epoch_Duration"')
_DEMAND = re.compile(r"Demand at (\d{1,6}) for chunk (\d{1,6}) from (\d{1,6}) met by epoch \d+")
_HOP = re.compile(r"(\d{1,6})->(\d{1,6})(?: with volume ([\d.e+-]{1,30}))? in epoch (\d{1,9})\b.*")


class _Hop(NamedTuple):
    src: int
    dst: int
    epoch: int
    share: float  # of the chunk


class _Demand(NamedTuple):
    """A chunk that a GPU demands of another, and the paths by which it comes."""

    dst: int
    chunk: int
    src: int
    paths: list[list[_Hop]]


def begins(text: str) -> bool:
    """Tells whether a text, or its beginning, is a schedule of TE-CCL."""
    return bool(_HEAD.match(text))


def parse(source: Source) -> Program:
    """Returns the program of a schedule: an Allgather or an Alltoall, not proved yet. O(hops).

    Where chunks go over several paths each is cut into the fewest equal pieces that give the paths
    their shares, or into 32, to which shares are then rounded.

    Raises:
        UserError: E503 it is no such schedule.
    """
    demands = list(_demands(source))
    numbers = sorted({end for d in demands for end in (d.dst, d.src)})
    if not 2 <= len(numbers) <= MAX_RANKS:
        raise _wrong(source, f"{len(numbers)} GPUs have demands")
    ranks = {number: rank for rank, number in enumerate(numbers)}
    for d in demands:
        for hop in (hop for path in d.paths for hop in path):
            if hop.src not in ranks or hop.dst not in ranks:
                number = hop.src if hop.src not in ranks else hop.dst
                raise _wrong(source, f"{number} passes a chunk on, and has no demand of its own")
    divided = any(len(d.paths) > 1 or d.paths[0][0].share < 1 for d in demands)
    gathers = not divided and _same_for_all(demands)
    n, made = len(ranks), _gather(demands, ranks) if gathers else _exchange(demands, ranks)
    op, (chunks, rows) = OpType.ALLGATHER if gathers else OpType.ALLTOALL, made
    if chunks > MAX_CHUNKS:
        raise _wrong(source, f"{n} GPUs would have {chunks:,} chunks")
    table = np.zeros(len(rows), TRANSFER)
    columns = np.array(sorted(rows)).T
    for name, column in zip(("step", "src", "dst", "chunk"), columns, strict=True):
        table[name] = column
    table["step"] = np.unique(table["step"], return_inverse=True)[1]  # epochs may be thousands
    table["op"] = Op.RECV
    name = f"teccl_{op.value.lower()}_{n}"
    return Program(name, Collective(op, n, chunks), 1, 16, n, 1, table)


def _wrong(source: Source, message: str) -> UserError:
    help = "give a schedule as TE-CCL writes it"
    return fail("E503", f"{source.name} is no schedule of TE-CCL: {message}", help=help)


def _demands(source: Source) -> Iterator[_Demand]:
    try:
        data: Any = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        raise _wrong(source, f"it is not JSON: {error}") from None
    keys = data if isinstance(data, dict) else {}
    paths = next((keys[key] for key in keys if key.lower().endswith("chunk paths")), None)
    if not isinstance(paths, dict) or not paths:
        raise _wrong(source, "it has no `Chunk paths`")
    for key, value in paths.items():
        found = _DEMAND.fullmatch(key)
        if not found:
            raise _wrong(source, f"{key[:80]!r} is no demand")
        dst, chunk, src = map(int, found.groups())
        whole = isinstance(value, list) and all(isinstance(hop, str) for hop in value)
        each = [value] if whole else value
        if not value or not isinstance(each, list):
            raise _wrong(source, f"{key[:80]!r} has no path")
        yield _Demand(dst, chunk, src, [_path(source, key, path) for path in each])


def _path(source: Source, key: str, path: object) -> list[_Hop]:
    """Reads a path: hops as texts, or each in a pair with its epoch."""
    hops = []
    for one in path if isinstance(path, list) else [path]:
        text = one[1] if isinstance(one, list) and len(one) == 2 else one
        found = _HOP.fullmatch(text) if isinstance(text, str) else None
        share = _number((found and found[3]) or "1")
        if not found or found[1] == found[2] or not 0 < share < 1 + _EXACT:
            raise _wrong(source, f"{str(text)[:80]!r} of {key[:80]!r} is no hop")
        hops.append(_Hop(int(found[1]), int(found[2]), int(found[4]), share))
    if not hops:
        raise _wrong(source, f"{key[:80]!r} has an empty path")
    return hops


def _number(text: str) -> float:
    """Returns a number; 0 of what is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _same_for_all(demands: Sequence[_Demand]) -> bool:
    """Tells whether every GPU demands the same chunks of a source."""
    wanted: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for d in demands:
        wanted[d.src][d.dst].add(d.chunk)
    return all(len({frozenset(chunks) for chunks in of.values()}) == 1 for of in wanted.values())


_Rows = list[tuple[int, int, int, int]]  # step, source, destination, chunk


def _gather(demands: Sequence[_Demand], ranks: Mapping[int, int]) -> tuple[int, _Rows]:
    """Returns the chunks and transfers of an Allgather. Paths of a chunk share their beginnings."""
    of_source: defaultdict[int, set[int]] = defaultdict(set)
    for d in demands:
        of_source[d.src].add(d.chunk)
    each = max(map(len, of_source.values()))
    place = {source: {c: k for k, c in enumerate(sorted(of))} for source, of in of_source.items()}
    earliest: dict[tuple[int, int, int], int] = {}
    for d in demands:
        chunk = ranks[d.src] * each + place[d.src][d.chunk]
        for hop in d.paths[0]:
            key = (ranks[hop.src], ranks[hop.dst], chunk)
            earliest[key] = min(hop.epoch, earliest.get(key, hop.epoch))
    return len(ranks) * each, [(step, *key) for key, step in earliest.items()]


def _exchange(demands: Sequence[_Demand], ranks: Mapping[int, int]) -> tuple[int, _Rows]:
    """Returns the chunks and transfers of an Alltoall."""
    n, pieces = len(ranks), _pieces(demands)
    of_pair: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for d in demands:
        of_pair[d.src, d.dst].add(d.chunk)
    each = max(map(len, of_pair.values()))
    place = {pair: {c: k for k, c in enumerate(sorted(of))} for pair, of in of_pair.items()}
    rows: _Rows = []
    for d in demands:
        block = ranks[d.src] * n + ranks[d.dst]
        first = (block * each + place[d.src, d.dst][d.chunk]) * pieces
        shares = np.array([path[0].share for path in d.paths])
        ends = np.rint(np.cumsum(shares) / shares.sum() * pieces).astype(int).tolist()
        for begin, end, path in zip([0, *ends[:-1]], ends, d.paths, strict=True):
            rows += [
                (hop.epoch, ranks[hop.src], ranks[hop.dst], first + piece)
                for hop in path
                for piece in range(begin, end)
            ]
    return n * n * each * pieces, rows


def _pieces(demands: Sequence[_Demand]) -> int:
    """Returns the fewest equal pieces of a chunk of which each path carries some."""
    shares = np.unique([path[0].share for d in demands for path in d.paths])
    for pieces in range(1, MAX_PIECES):
        exact = shares * pieces
        if np.abs(exact - np.rint(exact)).max() < _EXACT * pieces:
            return pieces
    return MAX_PIECES
