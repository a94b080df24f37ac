"""search: the state of a search for a schedule, and the record of its calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.base.progress import tell
from hccc.synth.cegis.encode import KeptConstraints, ScheduleEncoding, aggregated, full
from hccc.synth.cegis.hubs import Hubs, hubs
from hccc.synth.cegis.saturate import saturate
from hccc.synth.cegis.solvers import Answer, Verdict, solve
from hccc.synth.greedy.chunked import Chunked
from hccc.synth.greedy.least_steps import least_steps, linked_ranks
from hccc.synth.greedy.schedule import CopyDemand, Schedule, Violation, violations

# Variables: HiGHS found nothing with more in a quarter of an hour, nor Z3 in three minutes.
LARGEST = {"highs": 500_000, "z3": 250_000}


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """One way to encode. width: variables of a chunk and a step, at most; partial: encodes the
    first steps, and what holds as so many more follow."""

    encode: Callable[[CopyDemand, int], ScheduleEncoding]
    width: int
    partial: Callable[[CopyDemand, int, int], ScheduleEncoding] | None = None


@dataclass(frozen=True, slots=True)
class SolverCall:
    """One call of the solver, or why it was not called.

    steps: asked for; violations: of the candidate before; checkpoint: their earliest step (None
    where there is none); pruned: violations at the checkpoint, which no later candidate repeats at
    any step; frozen, frozen_transfers: steps of the prefix, and transfers in them; kept:
    constraints from counterexamples; variables: of the model, 0 where no solver was asked, as
    `least_steps` of the rest says no, or the model would be too large; seconds: it took; load:
    steps that any resource may be in use for, where that was asked (`balance`).
    """

    steps: int
    violations: int
    checkpoint: int | None
    pruned: tuple[Violation, ...]
    frozen: int
    frozen_transfers: int
    kept: int
    variables: int
    verdict: Verdict
    seconds: float
    load: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """The best valid schedule, a lower bound of N_step, and the calls of the solver; interrupted:
    whether Ctrl-C ended the search."""

    schedule: Schedule
    bound: int
    trace: tuple[SolverCall, ...] = ()
    interrupted: bool = False

    @property
    def gap(self) -> int:
        """Steps beyond the bound; 0: no schedule takes fewer."""
        return self.schedule.steps - self.bound


@dataclass(slots=True, eq=False)
class ScheduleSearch:
    """A demand on a cluster, the best schedule and the bound so far, and the time of the end
    (`deadline`, s of the monotonic clock)."""

    c: Chunked
    demand: CopyDemand
    best: Schedule
    bound: int
    solver: str
    seed: int
    deadline: float
    trace: list[SolverCall] = field(default_factory=list)
    interrupted: bool = False

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def outcome(self) -> SearchOutcome:
        """Returns the best so far."""
        return SearchOutcome(self.best, self.bound, tuple(self.trace), self.interrupted)

    def accept(self, s: Schedule) -> None:
        """Takes `s` as the best schedule.

        Raises:
            InternalError: it is not valid.
        """
        wrong = violations(s, self.c, self.demand)
        if wrong:
            raise InternalError(f"a synthesised schedule is not valid: {wrong[0]}")
        self.best = s

    def attempt(
        self,
        steps: int,
        prefix: Schedule,
        frozen: int,
        encoder: Encoder,
        seconds: float,
        *,
        wrong: Sequence[Violation] = (),
        kept: int = 0,
    ) -> tuple[Verdict, Schedule | None]:
        """Looks for a schedule of `steps` steps that begins with `prefix`, `frozen` steps long.
        wrong: violations of the candidate before; kept: constraints of `encoder` that
        counterexamples gave.

        Where the rest is too large for the solver, and the encoder can, the solver is asked for
        the next step only, and `saturate` adds what then is missing.
        """
        begin = time.monotonic()
        checkpoint = wrong[0].step if wrong else None
        pruned = tuple(violation for violation in wrong if violation.step == checkpoint)
        rest = remaining(self.demand, prefix)
        variables, answer, made = 0, Answer(Verdict.NONE), None
        ahead = self._ahead(encoder, rest, steps, frozen)
        by_step = encoder.partial is not None and not self._fits(encoder, rest, steps)
        if frozen + least_steps(self.c, rest) > steps:
            pass
        elif not ahead:
            answer = Answer(Verdict.LARGE)
        else:
            tell(f"{steps} steps, {frozen} of them frozen")
            later = steps - frozen - ahead
            if later and encoder.partial:
                encoding = encoder.partial(rest, ahead, later)
            else:
                encoding = encoder.encode(rest, ahead)
            variables = encoding.model.variables
            answer = solve(encoding.model, self.solver, min(seconds, self.left), self.seed)
            if answer.values is not None:
                made = joined(prefix, encoding.decode(answer.values), frozen)
            if made is not None and later:
                missing = saturate(self.c, remaining(self.demand, made))
                made = joined(made, missing, frozen + ahead)
        if by_step and frozen and answer.verdict is Verdict.NONE:
            answer = Answer(Verdict.UNKNOWN)  # other steps before may do, and none is tried again
        self.trace.append(
            SolverCall(
                steps,
                len(wrong),
                checkpoint,
                pruned,
                frozen,
                len(prefix),
                kept,
                variables,
                answer.verdict,
                time.monotonic() - begin,
            )
        )
        return answer.verdict, made

    def _ahead(self, encoder: Encoder, rest: CopyDemand, steps: int, frozen: int) -> int:
        """Returns how many steps the solver can be asked for behind `frozen` ones: all, one or
        none."""
        left = steps - frozen
        # Once by steps, so to the end: a step's model is small, that of several others need not be.
        if self._fits(encoder, rest, left if encoder.partial is None else steps):
            return left
        if encoder.partial is None:
            return 0
        has = np.count_nonzero(rest.pre, axis=1)
        return int((has * (self.c.n - has)).sum() <= LARGEST[self.solver])

    def _fits(self, encoder: Encoder, rest: CopyDemand, steps: int) -> bool:
        """Tells whether the solver can be asked for so many steps at once."""
        return encoder.width * len(rest.pre) * steps <= LARGEST[self.solver]


def remaining(demand: CopyDemand, prefix: Schedule) -> CopyDemand:
    """Returns the demand that is left after `prefix`."""
    has = demand.pre.copy()
    has[prefix.chunk, prefix.dst] = True
    return CopyDemand(has, demand.post, demand.exclusive)


def before(s: Schedule, step: int) -> Schedule:
    """Returns the transfers of `s` before `step`."""
    early = s.step < step
    return Schedule(s.chunk[early], s.src[early], s.dst[early], s.step[early])


def joined(prefix: Schedule, rest: Schedule, at: int) -> Schedule:
    """Returns `prefix`, then `rest` from step `at`."""
    return Schedule(
        np.append(prefix.chunk, rest.chunk),
        np.append(prefix.src, rest.src),
        np.append(prefix.dst, rest.dst),
        np.append(prefix.step, rest.step + at),
    )


def per_link(c: Chunked, kept: KeptConstraints | None = None) -> Encoder:
    """Returns the encoder `full`."""
    width = int(np.count_nonzero(linked_ranks(c))) + c.n
    if kept is None:
        return Encoder(lambda demand, steps: full(c, demand, steps), width)
    return Encoder(
        lambda demand, steps: full(c, demand, steps, kept),
        width,
        lambda demand, steps, then: full(c, demand, steps, kept, then),
    )


def smallest(c: Chunked) -> Encoder:
    """Returns the encoder `aggregated` where switches allow it, else `full`."""
    width = int(np.count_nonzero(c.node[:, None] == c.node)) + c.n * (int(c.node.max()) + 2)
    joining: Hubs | None = hubs(c) if width < max(LARGEST.values()) else None
    if joining is None:
        return per_link(c)
    known = joining
    return Encoder(lambda demand, steps: aggregated(c, demand, steps, known), width)
