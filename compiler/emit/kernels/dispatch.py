"""dispatch: chooses the function of each thread block: a switch on its index, conditions on its
rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hccc.emit.kernels.classes import Class
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Grid
from hccc.emit.kernels.function import LookupTables
from hccc.emit.kernels.width import code


@dataclass(frozen=True, slots=True)
class DispatchCase:
    """The thread blocks `labels` of every rank, all if there are none, and the lines they run."""

    labels: tuple[int, ...]
    lines: tuple[str, ...]


Choice = tuple[tuple[tuple[int, ...], str], ...]  # (ranks, call), each rank at most once


def cases(
    found: Sequence[tuple[Class, str]], n_ranks: int, gpus: int, tables: LookupTables
) -> tuple[DispatchCase, ...]:
    """Returns the cases of `hccc_program`; thread blocks that choose alike share one."""
    by_tb: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for alike, name in found:
        for rank, tbs in zip(alike.ranks, alike.tbs.tolist(), strict=True):
            for i, tb in enumerate(tbs):
                by_tb[tb][f"{name}(b, {i})" if alike.by_turn else f"{name}(b)"].append(rank)
    labels: dict[Choice, list[int]] = defaultdict(list)
    for tb in sorted(by_tb):
        labels[tuple(sorted((tuple(r), call) for call, r in by_tb[tb].items()))].append(tb)
    return tuple(
        DispatchCase(tuple(tbs), tuple(_lines(choice, n_ranks, gpus, tables)))
        for choice, tbs in labels.items()
    )


def _lines(choice: Choice, n_ranks: int, gpus: int, tables: LookupTables) -> list[str]:
    ordered = sorted(choice, key=lambda c: (-len(c[0]), c[0]))
    conditions = [condition(ranks, n_ranks, gpus) for ranks, _ in ordered]
    if None in conditions:
        return _switch(ordered, n_ranks, tables)
    lines = []
    if sum(len(ranks) for ranks, _ in ordered) == n_ranks:
        conditions[0] = ""  # it gets what the others leave
    for (_, call), when in list(zip(ordered, conditions, strict=True))[::-1]:
        lines.append(f"if ({when}) return {call};" if when else f"return {call};")
    return lines if "" in conditions else [*lines, "return;"]


def _switch(
    choice: Sequence[tuple[tuple[int, ...], str]], n_ranks: int, tables: LookupTables
) -> list[str]:
    """Writes a switch on a table with the function of each rank."""
    which = np.full(n_ranks, len(choice), np.int64)
    for k, (ranks, _) in enumerate(choice):
        which[list(ranks)] = k
    grid = Grid((Axis("b.rank", np.arange(n_ranks)),))
    lines = [f"switch ({code(fit(which, grid, ()), grid, tables.name)}) {{"]
    for k, (_, call) in enumerate(choice):
        lines += [f"  case {k}:", f"    return {call};"]
    return [*lines, "}", "return;"]


def condition(ranks: tuple[int, ...], n_ranks: int, gpus: int) -> str | None:
    """Returns C that is true for exactly these ranks; "" if they are all ranks, None if there is
    none."""
    low, high = ranks[0], ranks[-1]
    if len(ranks) == n_ranks:
        return ""
    if low == high:
        return f"b.rank == {low}"
    if high - low + 1 == len(ranks):
        lower, upper = f"b.rank >= {low}", f"b.rank <= {high}"
        return lower if high == n_ranks - 1 else upper if low == 0 else f"{lower} && {upper}"
    if len(ranks) == n_ranks - 1:
        return f"b.rank != {n_ranks * (n_ranks - 1) // 2 - sum(ranks)}"
    if gpus > 1 and ranks == tuple(range(low, n_ranks, gpus)) and low < gpus:
        return f"b.rank % {gpus} == {low}"
    return None
