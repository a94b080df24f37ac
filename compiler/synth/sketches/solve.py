"""solve: which rank sends a chunk to which and when, in every sub-demand of some sketches.

All roots have the same sketches, moved, so that of each sub-demand of one root there is one at
every other: together they load the cluster as the *differences* of ranks tell (`allot`). What the
sketches of an allotment ask of a dimension in one stage is one question of `epochs` (SyCCL's merged
sub-demand). In it each class of sub-demands that a move of ranks makes the same is asked once, with
its number, and its answer copied; and of several allotments each question is asked once, several at
a time (SyCCL §5.1).

In an Alltoall a transfer carries the chunks of all ranks behind its target, which later stages
tell: so the last stage is solved first, and no target of a sub-demand passes anything on in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import sched_getaffinity

import numpy as np

from hccc.ir.arrays import I8, frozen
from hccc.ir.collective import OpType
from hccc.ir.sketch import Sketch, SubDemand
from hccc.ir.topology import BYTES_PER_US
from hccc.synth.common.integer_programs import no_output
from hccc.synth.sketches.epochs import EpochDemand, EpochSchedule, scheduled, worthwhile
from hccc.synth.sketches.loads import Loads
from hccc.synth.sketches.symmetry import Symmetry

_Class = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # sources, targets, weights
_Question = tuple[str, tuple[tuple[_Class, int], ...]]  # dimension; classes, how many of each
Mix = Sequence[tuple[Sketch, int]]  # sketches, and the chunks of a block that each carries
SAME = 6  # decimals of times, in µs, that are one step


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A solved sketch. parent: i8[n] the rank that sends to each, -1 at the root; step: i8[n] when
    it does, of all trees of a mix, -1 at the root."""

    parent: I8
    step: I8

    def __post_init__(self) -> None:
        for name in ("parent", "step"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))

    def moved(self, s: Symmetry) -> Tree:
        """Returns the tree with its root moved to rank 0."""
        root = int(np.flatnonzero(self.parent < 0)[0])
        if root == 0:
            return self
        at = s.minus(np.arange(len(s)), np.array(root))
        parent, step = np.empty(len(s), np.int64), np.empty(len(s), np.int64)
        parent[at] = np.where(self.parent < 0, -1, at[self.parent])
        step[at] = self.step
        return Tree(parent, step)

    def carried(self) -> I8:
        """Returns how many ranks lie at or below each: i8[n]."""
        count = np.ones(len(self.parent), np.int64)
        for k in np.unique(self.step[self.step >= 0])[::-1].tolist():
            now = np.flatnonzero(self.step == k)
            np.add.at(count, self.parent[now], count[now])
        return count


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """Where each target of a class has the chunk from, a difference from the class's first source;
    when it is sent, and until when all have it, in µs."""

    origin: I8
    sent: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """The answers of a question's classes, and the µs until all of them are met."""

    of: dict[_Class, _Answer]
    time: float


class Solver:
    """Solves sketches of one collective on one cluster, for chunks of so many bytes."""

    def __init__(self, s: Symmetry, each: Loads, op: OpType, chunk: float) -> None:
        self.s, self.op, self.chunk = s, op, chunk
        self.each = each.backward(s) if op is OpType.REDUCESCATTER else each

    def trees(self, mixes: Sequence[Mix], e: float) -> list[list[Tree]]:
        """Returns the tree of each sketch of each mix, with its root moved to rank 0, solved in
        epochs of E = `e`."""
        n, answers = len(self.s), dict[_Question, _Answers]()
        below = [[np.ones(n, np.int64) for _ in mix] for mix in mixes]
        parents = [[np.full(n, -1) for _ in mix] for mix in mixes]
        sent = [[np.full(n, np.nan) for _ in mix] for mix in mixes]
        stages = [max(len(sketch.stages) for sketch, _ in mix) for mix in mixes]
        lasts = [np.zeros(count) for count in stages]
        for k in range(max(stages) - 1, -1, -1):
            asked = [self._questions(mix, k, at) for mix, at in zip(mixes, below, strict=True)]
            self._ask(
                {q for questions in asked for q in questions.values()} - {*answers}, answers, e
            )
            for j, (mix, questions) in enumerate(zip(mixes, asked, strict=True)):
                for i, (sketch, _) in enumerate(mix):
                    for demand in sketch.stages[k] if k < len(sketch.stages) else ():
                        found = answers[questions[demand.dimension]]
                        lasts[j][k] = max(lasts[j][k], found.time)
                        self._copy(demand, found, parents[j][i], sent[j][i], below[j][i])
        return [self._stepped(mix, parents[j], sent[j], lasts[j]) for j, mix in enumerate(mixes)]

    def _questions(self, mix: Mix, k: int, below: Sequence[I8]) -> dict[str, _Question]:
        """Returns what a mix asks of each dimension in stage `k`."""
        found = dict[str, Counter[_Class]]()
        for (sketch, count), weights in zip(mix, below, strict=True):
            for demand in sketch.stages[k] if k < len(sketch.stages) else ():
                one = self._class(demand, weights)
                found.setdefault(demand.dimension, Counter())[one] += count
        return {name: (name, tuple(sorted(of.items()))) for name, of in found.items()}

    def _class(self, demand: SubDemand, below: I8) -> _Class:
        """Returns the class of a sub-demand: ranks as differences from its first source, and what
        each target carries."""
        base = np.array(demand.sources[0])
        sources, targets = (
            tuple(self.s.minus(np.array(ranks), base).tolist())
            for ranks in (demand.sources, demand.targets)
        )
        weights = below[list(demand.targets)] if self.op is OpType.ALLTOALL else ()
        return sources, targets, tuple(np.asarray(weights, np.int64).tolist())

    def _ask(self, questions: set[_Question], answers: dict[_Question, _Answers], e: float) -> None:
        """Answers questions, several at a time: HiGHS lets go of the interpreter's lock."""
        wanted = sorted(questions)
        with no_output(), ThreadPoolExecutor(len(sched_getaffinity(0))) as pool:
            found = pool.map(lambda question: self._answered(question, e), wanted)
            answers |= dict(zip(wanted, found, strict=True))

    def _answered(self, question: _Question, e: float) -> _Answers:
        """Returns the answers of a question's classes."""
        name, classes = question
        parts, origins, first = list[tuple[EpochDemand, np.ndarray]](), list[I8](), 0
        for one, count in classes:
            d, origin, like = self._ways(name, one, count, first)
            parts.append((d, like))
            origins.append(origin)
            first += len(one[1])
        d = EpochDemand(
            *(
                np.concatenate(column)
                for column in zip(*(_columns(p) for p, _ in parts), strict=True)
            )
        )
        keep = worthwhile(d, np.concatenate([like for _, like in parts]))
        made = scheduled(d.only(keep), e)
        origin = np.concatenate(origins)[keep][made.way]
        return self._split(classes, origin, made)

    def _split(
        self, classes: tuple[tuple[_Class, int], ...], origin: I8, made: EpochSchedule
    ) -> _Answers:
        """Returns the answer of each class, from that of all."""
        ends = np.cumsum([len(one[1]) for one, _ in classes])[:-1]
        parts = zip(np.split(origin, ends), np.split(made.epoch * made.tau, ends), strict=True)
        of = {one: _Answer(*part) for (one, _), part in zip(classes, parts, strict=True)}
        return _Answers(of, made.arrived * made.tau)

    def _ways(
        self, name: str, one: _Class, count: int, first: int
    ) -> tuple[EpochDemand, I8, np.ndarray]:
        """Returns the ways to the targets of a class, numbered from `first`; where each begins; and
        which of them are spread best over the sources."""
        sources, targets, weights = (np.array(part, np.int64) for part in one)
        begins = sources if len(weights) else np.append(sources, targets)
        target, begin = (a.ravel() for a in np.indices((len(targets), len(begins))))
        relay = begin - len(sources)
        other = relay != target
        target, begin, relay = target[other], begin[other], relay[other]
        difference = self.s.minus(targets[target], begins[begin])
        carried = (weights[target] if len(weights) else 1) * np.full(len(target), count)
        busy = self.each.each[difference] * (carried * self.chunk / BYTES_PER_US)[:, None]
        balanced = self._balanced(name, sources, targets)
        d = EpochDemand(
            target + first,
            np.where(relay < 0, -1, relay + first),
            busy,
            self.each.alpha[difference],
        )
        return d, begins[begin], begins[begin] == balanced[target]

    def _copy(
        self, demand: SubDemand, found: _Answers, parent: I8, sent: np.ndarray, below: I8
    ) -> None:
        """Writes the answer of a sub-demand's class to its ranks."""
        targets, base = np.array(demand.targets), np.array(demand.sources[0])
        answer = found.of[self._class(demand, below)]
        parent[targets] = self.s.plus(answer.origin, base)
        sent[targets] = answer.sent
        np.add.at(below, parent[targets], below[targets])

    def _stepped(
        self, mix: Mix, parents: Sequence[I8], sent: Sequence[np.ndarray], lasts: np.ndarray
    ) -> list[Tree]:
        """Returns the trees of a mix, whose steps are the times at which anything is sent."""
        begins = np.append(0.0, np.cumsum(lasts))
        times = list[np.ndarray]()
        for (sketch, _), within in zip(mix, sent, strict=True):
            stage = np.zeros(len(self.s), np.int64)
            for k, demands in enumerate(sketch.stages):
                for demand in demands:
                    stage[list(demand.targets)] = k
            times.append(np.round(begins[stage] + within, SAME))
        every = np.unique(np.concatenate([time[~np.isnan(time)] for time in times]))
        return [
            Tree(
                parent, np.where(parent < 0, -1, np.searchsorted(every, np.nan_to_num(time)))
            ).moved(self.s)
            for parent, time in zip(parents, times, strict=True)
        ]

    def _balanced(self, name: str, sources: I8, targets: I8) -> I8:
        """Returns a source for each target: one that no lower dimension joins it with, where there
        is one; of these the least busy, then the one at the same place of its node."""
        lower = []
        for d in self.s.dimensions:
            if d.name == name:
                break
            lower.append(d.group)
        busy, found = np.zeros(len(sources), np.int64), np.empty(len(targets), np.int64)
        for k, target in enumerate(targets.tolist()):
            joined = np.zeros(len(sources), np.bool_)
            for group in lower:
                joined |= group[sources] == group[target]
            elsewhere = self.s.local[sources] != self.s.local[target]
            best = int(np.lexsort((elsewhere, busy, joined))[0])
            busy[best] += 1
            found[k] = sources[best]
        return found


def _columns(d: EpochDemand) -> tuple[np.ndarray, ...]:
    return d.target, d.relay, d.busy, d.alpha
