"""picks: picks the plan of a launch from a catalogue, as `include/hccc/catalogue.h` does.

The size of a launch is its message's: the bytes of the largest buffer of any rank.
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
        """Returns the distance, in bytes, from a rank's flags to those of a plan."""
        return sum(shape.flag_bytes for shape in self.shapes[:plan])

    def range_of(self, request: LaunchRequest) -> Range:
        """Returns the range of a launch."""
        blocks = self.catalogue.collective.most_blocks()
        return self.catalogue.pick(request.count * request.itemsize * blocks, request.in_place)

    def plan_of(self, request: LaunchRequest) -> str:
        """Returns the name of the plan of a launch."""
        return self.catalogue.plans[self.range_of(request).plan].name

    def shape_of(self, request: LaunchRequest) -> LayoutShape:
        """Returns the shape of the plan of a launch, with the range's grain."""
        found = self.range_of(request)
        return replace(self.shapes[found.plan], grain=found.grain)

    def window_of(self, request: LaunchRequest) -> int:
        """Returns the window of a launch, 0 for all micro-batches."""
        plan = self.catalogue.plan_of(self.range_of(request))
        return request.window or plan.default_window


def picks_of(catalogue: Catalogue) -> Picks:
    """Returns the picks of a library of `catalogue`."""
    return Picks(catalogue, tuple(map(shape_of, catalogue.plans)))
