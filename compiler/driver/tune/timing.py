"""timing: the times of one structure's calls on a cluster, each simulated once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import thread_time

import numpy as np

from hccc.base.diagnostics import UserError
from hccc.driver.tune.kept import KeptCalls, Took, named
from hccc.driver.tune.setting import Setting, applied
from hccc.ir.micro_batch import COARSEST
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.machine import Machine, batches_of, pieces, prepare
from hccc.sim.simulate import ENDLESS, Request, same_in_place, simulate

COARSE = 4
LARGE = (
    16  # micro-batches of a simulated call of a plan that has more than `max_instances` primitives
)
LARGEST = 5 << 19  # instances of such a call, or one of each primitive
WORK = 3 << 23  # of such a call (`sim/simulate`): some seconds
# Rates of a call, or of one size's search, of a structure that is slower than another
# (`sim/simulate`): a tenth of a second.
BEHIND = 1 << 20
FULL = 0.95  # the share of a link's capacity from which on other settings are hardly faster
Cut = tuple[int, bool, int, int, int]  # size, in place, channels, window, micro-batches


@dataclass(slots=True)
class CallTiming:
    """The times of calls of `plan` on `topology`.

    max_instances: instances (primitives times micro-batches) of a simulated call; COARSE times as
    many if a call cannot be cut more coarsely; calls with more are not simulated. A plan of more
    primitives may have LARGE micro-batches and LARGEST instances, and is given up after WORK if it
    has more than one micro-batch. instances: the number simulated so far; rates: of flows, the
    number computed for that, about; longest: of any call simulated to its end; most_rates: a call
    that needs more is given up; worth: µs, a call that needs more than BEHIND is given up if it
    takes longer; kept: what calls took that were simulated before, whenever.
    """

    plan: Plan
    topology: Topology
    max_instances: int
    kept: KeptCalls | None = None
    instances: int = 0
    rates: int = 0
    longest: int = 0
    most_rates: int = ENDLESS
    worth: float = math.inf
    _alike: bool = field(init=False)  # whether calls in place take as long as those out of place
    _end: float = math.inf  # of instances: no further call is simulated
    _enough: float = math.inf  # of rates, likewise
    _machines: dict[int, Machine] = field(default_factory=dict)
    _known: dict[Cut, float] = field(default_factory=dict)
    _least: dict[Cut, float] = field(default_factory=dict)  # calls take more than these µs
    _took_before: dict[tuple[int, Request], Took] = field(default_factory=dict)  # by channels
    _late: dict[tuple[int, Request], float] = field(default_factory=dict)  # as `_least`
    # The least micro-batches that took too many rates, by channels, window, and rates.
    _crowded: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._alike = same_in_place(self.plan, self.topology)

    def time(
        self, size: int, setting: Setting, in_place: bool | None = None, limit: float = math.inf
    ) -> float:
        """Returns the µs of a call of `size` bytes; inf if it cannot be made, has `max_bytes` of
        the plan or more, is cut too finely, or takes more than `limit`, unless its time is known.

        in_place: None for out of place if the plan serves it. O(instances) the first time; settings
        that cut the call alike share their time, and so do calls in place and out of place that
        move the same bytes.
        """
        if in_place not in (None, *self.plan.modes):
            return math.inf
        if self.plan.max_bytes and size >= self.plan.max_bytes:
            return math.inf  # another plan's range begins there
        if in_place is None or self._alike:
            in_place = self.plan.modes[0]
        plan = applied(self.plan, setting)
        batches = batches_of(plan, pieces(plan, size)[0], 0)[0]
        window = setting.window if 0 < setting.window < batches else 0
        cut = size, in_place, setting.channels, window, batches
        if cut in self._known:
            return self._known[cut]
        if self._over or self._least.get(cut, 0.0) >= limit:
            return math.inf
        if self._too_fine(plan, size, batches):
            return math.inf
        took = self._simulated(plan, size, window, batches, in_place, limit)
        if math.isinf(took) and min(limit, self.worth) < math.inf:
            self._least[cut] = min(limit, self.worth)
        else:
            self._known[cut] = took
        return took

    @contextmanager
    def limited(self, instances: float) -> Iterator[None]:
        """Limits the simulation inside `with`: unknown calls take inf after this many instances, or
        once links of a large plan are in use all the time."""
        self._end = self.instances + instances
        yield
        self._end = self._enough = math.inf

    def stop_at(self, rates: int) -> None:
        """Limits the simulation inside `limited` more: unknown calls take inf once `self.rates` are
        so many."""
        self._enough = rates

    def _too_fine(self, plan: Plan, size: int, batches: int) -> bool:
        """Tells whether a call of so many micro-batches takes too long to simulate."""
        max_instances = self.max_instances
        if len(plan) > max_instances:
            max_instances = max(len(plan), min(LARGE * len(plan), LARGEST))
        if len(plan) * batches <= max_instances:
            return False
        coarse = batches_of(replace(plan, grain=COARSEST), pieces(plan, size)[0], 0)[0]
        return batches > coarse or len(plan) * batches > COARSE * max_instances

    def _simulated(
        self, plan: Plan, size: int, window: int, batches: int, in_place: bool, limit: float
    ) -> float:
        large = len(plan) > self.max_instances
        _, micro = batches_of(plan, pieces(plan, size)[0], 0)
        if self._alone and not plan.max_window:
            window = 0
        request = Request(size, max(1, math.ceil(micro)), window, in_place)
        work = min(self.most_rates, WORK if large and batches > 1 else ENDLESS)
        cut = plan.channels, window, work
        if batches >= self._crowded.get(cut, math.inf):
            return math.inf
        self.instances += len(plan) * batches
        took = self._took(plan.channels, request, work, limit)
        if took is None and work < ENDLESS and math.isinf(limit):
            self._crowded[cut] = batches  # more would not end, either
        if took is None or took.quiet > limit - took.launch:
            return math.inf
        if large and self._end < math.inf and took.use >= FULL:
            self._end = self.instances
        return took.time

    @property
    def _over(self) -> bool:
        """Whether a limit is reached."""
        return self.instances >= self._end or self.rates >= self._enough

    @property
    def _alone(self) -> bool:
        """Whether no thread block has more than one primitive: then the window changes nothing."""
        return int(np.diff(self.plan.tb_ptr).max(initial=0)) <= 1

    def _took(self, channels: int, request: Request, work: int, limit: float) -> Took | None:
        """Simulates a call, unless it was before; None if it does not end by `limit`."""
        call = channels, request
        if call not in self._took_before and limit > self._late.get(call, 0.0):
            took = self._run(channels, request, work, limit)
            if took is None:
                if limit < math.inf and work == ENDLESS:
                    self._late[call] = min(limit, self.worth)
                self.rates += min(self.longest, work)  # about as many
                return None
            self._took_before[call] = took
            self.rates += took.rates
            self.longest = max(self.longest, took.rates)
        return self._took_before.get(call)

    def _run(self, channels: int, request: Request, work: int, limit: float) -> Took | None:
        """Simulates a call; what takes long only where it may end by `worth`."""
        if self.worth < limit and work > BEHIND:
            if (took := self._known_or_run(channels, request, BEHIND, limit)) is not None:
                return took
            limit = self.worth
        return self._known_or_run(channels, request, work, limit)

    def _known_or_run(
        self, channels: int, request: Request, work: int, limit: float
    ) -> Took | None:
        if self.kept is None:
            return self._run_now(channels, request, work, limit)
        words = request.size, request.micro_batch, request.window, request.in_place
        name = named(channels, words, work, limit)
        if name not in self.kept.known:
            begun = thread_time()
            self.kept.known[name] = self._run_now(channels, request, work, limit)
            self.kept.took_s += thread_time() - begun
        return self.kept.known[name]

    def _run_now(self, channels: int, request: Request, work: int, limit: float) -> Took | None:
        if channels not in self._machines:
            # Requests say the window, and without one there is none.
            plan = replace(self.plan, channels=channels, window=0)
            self._machines[channels] = prepare(plan, self.topology)
        try:
            run = simulate(self._machines[channels], request, work, limit)
        except UserError:  # the deadlock proof says it better
            return None
        use = float(run.utilisation.max(initial=0.0))
        return Took(run.time, run.quiet, run.launch, use, run.rates)
