"""tune: of several structures of one collective, which to run with what, for the sizes asked.

First every structure is tried at a few sizes, and those that are far from the best at all of them
are dropped; then the search goes through all sizes, each from where the last ended. What it found
at any size is a candidate for all sizes, and the matrix of their times decides (`choose`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.plan import Plan
from hccc.ir.topology import F8, Topology
from hccc.tune import choose
from hccc.tune.search import descend, exhaustive
from hccc.tune.setting import Setting, Space, applied, space
from hccc.tune.timing import Timing

FAR = 1.25  # times the best: a structure that is slower at every probe is dropped
PROBES = 3
MOST = {"fast": 1 << 16, "full": 1 << 20}  # instances of a simulated call


@dataclass(frozen=True, slots=True)
class Structure:
    """A Plan that may be run with any Setting. name: how it was made, for people."""

    name: str
    plan: Plan


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """What was weighed. structures: those that were tried; sizes: bytes, ascending; candidates:
    (structure, Setting); times: f8[candidates, sizes] µs; probed: µs of each structure at the
    probes; instances: primitives times micro-batches simulated."""

    structures: tuple[Structure, ...]
    sizes: tuple[int, ...]
    candidates: tuple[tuple[int, Setting], ...]
    times: F8
    probed: F8
    instances: int

    def one(self) -> int:
        """The candidate for all sizes."""
        return choose.one(self.times)

    def ranges(self, most: int) -> I8:
        """The candidate for each size, in at most `most` runs: i8[sizes]."""
        return choose.ranges(self.times, most)

    def plan(self, candidate: int) -> Plan:
        """The Plan of a candidate."""
        at, setting = self.candidates[candidate]
        return applied(self.structures[at].plan, setting)


def tune(
    structures: Sequence[Structure],
    topology: Topology,
    sizes: Sequence[int],
    blocks: int,
    *,
    effort: str = "fast",
    channels: int | None = None,
    in_place: bool = False,
) -> Tuned:
    """Weighs `structures` on `topology` for calls of `sizes` bytes.

    blocks: most thread blocks of a rank, all channels; channels: how many there must be, None for
    any; effort: "fast" or "full", which tries every Setting.
    """
    timings = [Timing(s.plan, topology, in_place, MOST[effort]) for s in structures]
    spaces = [space(s.plan, blocks, channels) for s in structures]
    searches = [_Search(t, s, effort) for t, s in zip(timings, spaces, strict=True)]
    at = sorted({round(x) for x in np.linspace(0, len(sizes) - 1, PROBES)})
    probed = np.array([[search(sizes[i])[1] for i in at] for search in searches])
    kept = np.flatnonzero((probed <= FAR * probed.min(0)).any(1))
    found: dict[tuple[int, Setting], None] = {}
    for k in kept.tolist():
        for size in sizes:
            setting, took = searches[k](size)
            if np.isfinite(took):
                found[k, setting] = None
    candidates = tuple(found)
    times = np.array([[timings[k].time(size, s) for size in sizes] for k, s in candidates])
    return Tuned(
        tuple(structures), tuple(sizes), candidates, times, probed,
        sum(timing.instances for timing in timings),
    )  # fmt: skip


class _Search:
    """The best Setting of one structure, size after size, each begun where the last ended."""

    def __init__(self, timing: Timing, space: Space, effort: str) -> None:
        self._timing, self._space, self._effort = timing, space, effort
        fine = Setting(space.channels[-1], space.windows[min(1, len(space.windows) - 1)], 1 << 12)
        self._starts = [space.middle(), fine]
        self._last: Setting | None = None

    def __call__(self, size: int) -> tuple[Setting, float]:
        def time(setting: Setting) -> float:
            return self._timing.time(size, setting)

        if self._effort == "full":
            return exhaustive(self._space, time)
        starts = [*([self._last] if self._last else []), *self._starts]
        found = min((descend(self._space, time, s) for s in starts), key=lambda pair: pair[1])
        self._last = found[0]
        return found
