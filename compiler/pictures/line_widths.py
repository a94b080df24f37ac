"""line_widths: the widths of the lines of a picture: one scale, and samples of it for the
legend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hccc.ir import text
from hccc.pictures import palette
from hccc.pictures.legend import LegendEntry

_THIN, _THICK = 0.7, 3.8  # points
_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class LineWidths:
    """Points of a line for GB/s, by the square root: 2 to 900 GB/s must all be visible.

    capacities: GB/s of all lines of the picture, ascending.
    """

    capacities: tuple[float, ...]

    @classmethod
    def of(cls, capacities: Iterable[float]) -> LineWidths:
        """Returns the scale of a picture with lines of these GB/s."""
        return cls(tuple(sorted(set(capacities))))

    def __call__(self, capacity: float) -> float:
        most = max(self.capacities[-1], 1e-9)
        return _THIN + (_THICK - _THIN) * float((capacity / most) ** 0.5)

    def legend(self) -> list[LegendEntry]:
        """Returns samples of the least, the most and at most two between."""
        n = len(self.capacities)
        chosen = sorted({round(i * (n - 1) / (_SAMPLES - 1)) for i in range(_SAMPLES)}) if n else []
        return [
            LegendEntry(
                f"{text.number(self.capacities[i])} GB/s",
                palette.FAINT,
                line=self(self.capacities[i]),
            )
            for i in chosen
        ]
