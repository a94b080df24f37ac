"""timing: what calls of one structure take on a cluster, each simulated once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hccc.diagnostics import UserError
from hccc.ir.micro_batch import COARSEST
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology
from hccc.sim.machine import Machine, batches_of, pieces, prepare
from hccc.sim.simulate import Request, time_of
from hccc.tune.setting import Setting, applied

COARSE = 4
Cut = tuple[int, bool, int, int, int]  # size, in place, channels, window, micro-batches


@dataclass(slots=True)
class Timing:
    """What calls of `plan` take on `topology`.

    most: instances (primitives times micro-batches) of a simulated call, or one of each primitive;
    COARSE times as many of one that cannot be cut more coarsely. Finer ones take for ever.
    instances: how many were simulated so far.
    """

    plan: Plan
    topology: Topology
    most: int
    instances: int = 0
    _end: float = math.inf  # of instances: no further call is simulated
    _machines: dict[int, Machine] = field(default_factory=dict)
    _known: dict[Cut, float] = field(default_factory=dict)
    _least: dict[Cut, float] = field(default_factory=dict)  # calls take more than these µs

    def time(
        self, size: int, setting: Setting, in_place: bool | None = None, limit: float = math.inf
    ) -> float:
        """µs of a call of `size` bytes; inf where it cannot be made, is cut too finely, or takes
        more than `limit` and nobody asked for more. in_place: None for out of place where the
        plan serves that.

        O(instances) the first time; settings that cut the call alike are alike.
        """
        if in_place is None:
            in_place = self.plan.modes[0]
        if in_place not in self.plan.modes:
            return math.inf
        plan = applied(self.plan, setting)
        batches = batches_of(plan, pieces(plan, size)[0], 0)[0]
        window = setting.window if 0 < setting.window < batches else 0
        cut = size, in_place, setting.channels, window, batches
        if cut in self._known:
            return self._known[cut]
        if self.instances >= self._end or self._least.get(cut, 0.0) >= limit:
            return math.inf
        took = self._simulated(plan, size, window, batches, in_place, limit)
        if math.isinf(took) and limit < math.inf:
            self._least[cut] = limit
        else:
            self._known[cut] = took
        return took

    @contextmanager
    def limited(self, instances: float) -> Iterator[None]:
        """Within, calls that are not known take inf once so many instances were simulated."""
        self._end = self.instances + instances
        yield
        self._end = math.inf

    def _simulated(
        self, plan: Plan, size: int, window: int, batches: int, in_place: bool, limit: float
    ) -> float:
        instances = len(plan) * batches
        coarse = batches_of(replace(plan, grain=COARSEST), pieces(plan, size)[0], 0)[0]
        most = max(self.most, len(plan)) * (COARSE if batches == coarse else 1)
        if instances > most:
            return math.inf
        self.instances += instances
        if plan.channels not in self._machines:
            self._machines[plan.channels] = prepare(plan, self.topology)
        machine = self._machines[plan.channels]
        _, micro, _ = batches_of(plan, pieces(plan, size)[0], 0)
        request = Request(size, max(1, math.ceil(micro)), window, in_place)
        try:
            return time_of(machine, request, limit)
        except UserError:  # the deadlock proof says it better
            return math.inf
