"""picks: which plan of a catalogue a launch takes, reckoned as `include/hccc/catalogue.h` does.

The size of a launch is its message's: bytes of the larger buffer of the rank that has most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hccc.ir.catalogue import Catalogue, Range
from hccc.runtime.layout import LayoutShape, shape_of
from hccc.runtime.request import LaunchRequest


@dataclass(frozen=True, slots=True)
class Picks:
    """A catalogue and the shapes of its plans."""

    catalogue: Catalogue
    shapes: tuple[LayoutShape, ...]

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags, of all plans."""
        return self.flags_at(len(self.shapes))

    def flags_at(self, plan: int) -> int:
        """Bytes from a rank's flags to those of a plan."""
        return sum(shape.flag_bytes for shape in self.shapes[:plan])

    def range_of(self, request: LaunchRequest) -> Range:
        """The range that has a launch."""
        blocks = self.catalogue.collective.most_blocks()
        return self.catalogue.pick(request.count * request.itemsize * blocks, request.in_place)

    def plan_of(self, request: LaunchRequest) -> str:
        """The name of the plan that a launch takes."""
        return self.catalogue.plans[self.range_of(request).plan].name

    def shape_of(self, request: LaunchRequest) -> LayoutShape:
        """The shape of the plan that a launch takes, cut as finely as its range says."""
        found = self.range_of(request)
        return replace(self.shapes[found.plan], grain=found.grain)

    def window_of(self, request: LaunchRequest) -> int:
        """The window that a launch has, 0 for all micro-batches."""
        plan = self.catalogue.plan_of(self.range_of(request))
        return request.window or plan.default_window


def picks_of(catalogue: Catalogue) -> Picks:
    """What a library of `catalogue` picks by."""
    return Picks(catalogue, tuple(map(shape_of, catalogue.plans)))
