"""source_lines: the lines of the program that primitives were compiled from.

A plan has the line of a primitive's first task. What was fused has more: each operand at another
rank is a transfer of its own, found in the program by its ranks and its chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hccc.ir.arrays import I4, I8, Csr, csr_from_pairs, starts
from hccc.ir.program import Op, Program
from hccc.pictures.primitive_text import PrimitiveRole, PrimitiveText
from hccc.pictures.rows import RankRows


def of_lines(lines: Iterable[int]) -> Mapping[str, str]:
    """Returns the attribute of what comes of these lines: `3 5-9`; 0 is no line."""
    runs: list[list[int]] = []
    for line in sorted({*lines} - {0}):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    text = " ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)
    return {"data-lines": text} if text else {}


def source_lines(texts: PrimitiveText, program: Program | None) -> Csr:
    """Returns the lines of each primitive. O((transfers + operands) log transfers).

    program: what the plan was compiled from; without it, only the line of the first task is known.
    """
    plan = texts.plan
    first = np.arange(len(plan.line)), plan.line
    if program is None or not len(program):
        return csr_from_pairs(*first, len(plan.line))
    found = _Transfers(program)
    owner, at = texts.sources.owner(), texts.sources.index
    reads = np.where(texts.kind[owner] == PrimitiveRole.REDUCE, int(Op.RRC), int(Op.RECV))
    got = found.first(at, texts.rank[owner], plan.chunk[owner], np.zeros(len(at), np.int64), reads)
    # What a fused primitive sends it received before, in an earlier step.
    after = np.zeros(len(plan.line), np.int64)
    np.maximum.at(after, owner[got >= 0], found.step[got[got >= 0]] + 1)
    sends, to = texts.targets.owner(), texts.targets.index
    sent = found.first(texts.rank[sends], to, plan.chunk[sends], after[sends], None)
    many = texts.sources.counts() + texts.targets.counts() > 1
    rows, hits = np.r_[owner, sends], np.r_[got, sent]
    kept = (hits >= 0) & many[rows]
    rows, lines = np.r_[first[0], rows[kept]], np.r_[first[1], found.line[hits[kept]]]
    pairs = np.unique(np.stack([rows, lines], 1), axis=0)
    return csr_from_pairs(pairs[:, 0], pairs[:, 1], len(plan.line))


class _Transfers:
    """The transfers of a program by (source, destination, chunk), then by step.

    step, line: i8[n] of each, in that order.
    """

    def __init__(self, program: Program) -> None:
        t = program.transfers
        key = [t[name].astype(np.int64) for name in ("src", "dst", "chunk", "step", "op")]
        order = np.lexsort(key[::-1])
        self._rows = np.stack([column[order] for column in key], 1)
        self.step, self.line = self._rows[:, 3], t["line"].astype(np.int64)[order]
        self._scale = np.array([column.max() + 2 for column in key], np.int64)
        self._keys = self._key(self._rows[:, :3], self._rows[:, 3])

    def _key(self, of: I8, step: I8) -> I8:
        """Returns a number that sorts by source, destination, chunk (columns of `of`) and step."""
        _, dsts, chunks, steps, _ = self._scale
        src, dst, chunk = of.T
        key: I8 = ((src * dsts + dst) * chunks + chunk) * steps + np.minimum(step, steps - 1)
        return key

    def first(self, src: I4, dst: I4, chunk: I4, step: I8, op: I8 | None) -> I8:
        """Returns the first transfer of each key at `step` or later, by preference one of kind
        `op`; -1 for none."""
        wanted = np.stack([np.asarray(x, np.int64) for x in (src, dst, chunk)], 1)
        at = np.searchsorted(self._keys, self._key(wanted, np.asarray(step, np.int64)))
        found = self._same(at, wanted)
        if op is not None:  # a pair of ranks may exchange a chunk twice: reduced, then copied
            later = np.where(found >= 0, found + 1, -1)
            other = self._same(later, wanted)
            better = (found >= 0) & (self._rows[found, 4] != op) & (other >= 0)
            found = np.where(better & (self._rows[other, 4] == op), other, found)
        return found

    def _same(self, at: I8, wanted: I8) -> I8:
        """Returns `at` where the transfer there has the wanted ranks and chunk, else -1."""
        inside = (at >= 0) & (at < len(self._rows))
        at = np.where(inside, at, 0)
        return np.where(inside & (self._rows[at, :3] == wanted).all(1), at, -1)


def lines_of_rank(lines: Csr, texts: PrimitiveText, rows: RankRows) -> Csr:
    """Returns the lines of each primitive of a rank's rows, with those of the ranks alike.
    O(primitives of all these ranks)."""
    plan = texts.plan
    begin = plan.tb_ptr[starts(plan.n_tb)]
    first, stop = (int(plan.tb_ptr[b]) for b in (rows.blocks.start, rows.blocks.stop))
    shifts = [int(begin[r] - begin[rows.rank]) for r in (rows.rank, *rows.alike)]
    taken = [lines.take(np.arange(first, stop) + shift) for shift in shifts]
    pairs = np.concatenate([np.stack([each.owner(), each.index], 1) for each in taken])
    pairs = np.unique(pairs, axis=0)
    return csr_from_pairs(pairs[:, 0], pairs[:, 1], stop - first)
