"""balance: schedules of as few steps whose busiest resource carries less.

Of many batches each begins as soon as the busiest resource is free (HeteCCL App. K, Eq. 10), so a
long call takes what that resource carries in all, whatever the steps. Algorithm 1 does not look at
that. Here the steps are given, and HiGHS is asked for schedules, of both phases of an Allreduce at
once, in which no resource is in use for more than so many steps: first for as few as cuts allow,
then for half way up to what is known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.base.progress import tell
from hccc.ir.arrays import I8
from hccc.ir.topology import F8
from hccc.synth.cegis.encode import ScheduleEncoding
from hccc.synth.cegis.model import ConstraintRows
from hccc.synth.cegis.search import LARGEST, SolverCall, smallest
from hccc.synth.cegis.solvers import solve
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import least_load
from hccc.synth.greedy.schedule import CopyDemand, Schedule, load, violations

SOLVER = "highs"
SHARE = 0.5  # of the time left, for each question: that nothing is so light may be hard to prove
EXACT = 1e-9  # of a load, below which a difference is rounding


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledPart:
    """A demand on a cluster and a valid schedule of it. back: whether it runs backwards, over links
    turned round: `c` has them turned."""

    c: Chunked
    demand: CopyDemand
    schedule: Schedule
    back: bool = False

    def mended(self, s: Schedule) -> ScheduledPart:
        """Returns the same with another schedule.

        Raises:
            InternalError: it is not valid.
        """
        if wrong := violations(s, self.c, self.demand):
            raise InternalError(f"a balanced schedule is not valid: {wrong[0]}")
        return replace(self, schedule=s)


@dataclass(slots=True, eq=False)
class Balance:
    """The schedules so far, of parts that run together, and the record of what was asked."""

    parts: list[ScheduledPart]
    deadline: float
    trace: list[SolverCall] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds until the deadline, of the monotonic clock."""
        return self.deadline - time.monotonic()

    def run(self) -> None:
        """Searches until nothing lighter is possible, or time is up.

        Raises:
            KeyboardInterrupt: the schedules are the best so far.
        """
        encoders = [smallest(part.c) for part in self.parts]
        sizes = (
            encoder.width * len(part.demand.pre) * part.schedule.steps
            for encoder, part in zip(encoders, self.parts, strict=True)
        )
        levels = self._levels()
        if not len(levels) or sum(sizes) > LARGEST[SOLVER] or self.left <= 0:
            return
        encodings = [
            encoder.encode(part.demand, part.schedule.steps)
            for encoder, part in zip(encoders, self.parts, strict=True)
        ]
        low, high, at = 0, len(levels), 0
        while low < high and self.left > 0:
            if self._lighter(encodings, float(levels[at])):
                high = at
            else:
                low = at + 1
            at = (low + high) // 2

    def _levels(self) -> F8:
        """Returns the loads, in steps, below what is known that a resource can have, ascending."""
        c = self.parts[0].c
        known = sum(load(part.schedule, part.c) for part in self.parts)
        steps = known / c.capacity
        least = least_load(self._forwards(), [(part.demand, part.back) for part in self.parts])
        heavy = np.unique(c.capacity[steps > least + EXACT])
        counts = (np.arange(np.ceil(least * k - EXACT), steps.max() * k) / k for k in heavy)
        levels: F8 = np.unique(np.concatenate([np.zeros(0), *counts]))
        lighter: F8 = levels[levels < steps.max(initial=0.0) - EXACT]
        return lighter

    def _forwards(self) -> Chunked:
        part = self.parts[0]
        return part.c.reversed() if part.back else part.c

    def _lighter(self, encodings: Sequence[ScheduleEncoding], level: float) -> bool:
        """Looks for schedules in which no resource is in use for more than `level` steps; takes
        them, and tells whether there are some."""
        begin = time.monotonic()
        tell(f"at most {level:g} steps of any link")
        rows, first = ConstraintRows(), list[int]()
        uppers, uses = list[I8](), list[tuple[I8, I8]]()
        for encoding in encodings:
            first.append(sum(map(len, uppers)))
            rows.include(encoding.model, first[-1])
            uppers.append(encoding.model.upper)
            uses.append((encoding.resource, encoding.variable + first[-1]))
        resource, variable = (np.concatenate(part) for part in zip(*uses, strict=True))
        capacity = self.parts[0].c.capacity
        rows.capacity(resource, variable, np.floor(level * capacity + EXACT).astype(np.int64))
        model = rows.model(np.concatenate(uppers))
        answer = solve(model, SOLVER, self.left * SHARE)
        steps = sum(part.schedule.steps for part in self.parts)
        took = time.monotonic() - begin
        asked = SolverCall(
            steps, 0, None, (), 0, 0, 0, model.variables, answer.verdict, took, level
        )
        self.trace.append(asked)
        if answer.values is None:
            return False
        values = np.split(answer.values, first[1:])
        self.parts = [
            part.mended(encoding.decode(own))
            for part, encoding, own in zip(self.parts, encodings, values, strict=True)
        ]
        return True
