"""tracing: records one more launch after the timed launches of a row (`hccc run --trace`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.layout import CallSizes, LayoutShape
from hccc.runtime.measure.perf import Ranks, Recordable
from hccc.runtime.picks import picks_of
from hccc.runtime.recording import LaunchRecording
from hccc.runtime.request import LaunchRequest

MOST_RECORDS = 1 << 18  # of one launch: viewers open no more


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A launch, the plan that served it, how it was cut, and the recording of its kernels."""

    request: LaunchRequest
    plan: Plan
    sizes: CallSizes
    window: int  # micro-batches
    recording: LaunchRecording


class Tracer:
    """Records a launch of each row of a run."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._picks = picks_of(catalogue)
        self.launches: list[Traced] = []

    def record(self, ranks: Ranks, request: LaunchRequest) -> None:
        """Records one more launch of the ranks that were just measured."""
        assert isinstance(ranks, Recordable)
        plan, shape, window = self._served(request)
        sizes = shape.sizes(request.count, request.itemsize, request.micro_batch)
        slots = slots_of(plan, sizes.batches)
        recording = ranks.record(shape.blocks * shape.channels, slots)
        window = min(window or sizes.batches, max(sizes.batches, 1))
        self.launches.append(Traced(request, plan, sizes, window, recording))

    def _served(self, request: LaunchRequest) -> tuple[Plan, LayoutShape, int]:
        """Returns the plan that serves a call, its shape, and its window, 0 for all
        micro-batches."""
        picks = self._picks
        plan = picks.catalogue.plan_of(picks.range_of(request))
        return plan, picks.shape_of(request), picks.window_of(request)


def slots_of(plan: Plan, batches: int) -> int:
    """Returns how many records a thread block keeps, a power of two: a whole launch, or as many as
    MOST_RECORDS allows over all thread blocks."""
    longest = int(np.diff(plan.tb_ptr).max(initial=0)) * batches
    wanted = 1 << max(longest - 1, 0).bit_length()
    room = MOST_RECORDS // max(plan.n_ranks * plan.blocks_per_rank, 1)
    return min(wanted, 1 << max(room.bit_length() - 1, 0))
