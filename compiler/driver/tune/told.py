"""told: what was weighed and chosen, as facts and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hccc.driver.tune.tune import Range, Tuned
from hccc.ir import text as words


def facts(tuned: Tuned) -> dict[str, object]:
    """What was weighed, for JSON: structures with the least time (µs) of each at some sizes, and
    ranges with what each takes at the sizes in it that were simulated."""
    return {
        "instances": tuned.instances,
        "structures": [
            {"name": name, "times": _at(tuned.probes, tuned.probed[k])}
            for k, name in enumerate(tuned.names)
        ],
        "ranges": [
            {
                "in_place": one.in_place,
                "begin": one.begin,
                "structure": tuned.names[tuned.candidates[one.candidate][0]],
                **tuned.candidates[one.candidate][1]._asdict(),
                "blocks": tuned.plan(one.candidate).blocks_per_rank,
                "times": _at(sizes, times),
            }
            for one in tuned.ranges
            for sizes, times in [_times(tuned, one)]
        ],
    }


def chosen(tuned: Tuned, names: Sequence[str]) -> Iterator[str]:
    """The ranges of calls out of place (in place, where only those are served), a line each.

    names: of the kernels (`Tuned.kernels`); one where there is one plan, which needs no telling.
    """
    kernels = tuned.kernels()
    kind = tuned.ranges[0].in_place
    of_kind = [one for one in tuned.ranges if one.in_place == kind]
    for one in of_kind:
        structure, setting = tuned.candidates[one.candidate]
        blocks = tuned.plan(one.candidate).blocks_per_rank
        window = f", window {setting.window}" if setting.window else ""
        cut = f"{setting.channels} channels{window}, grain {words.size(setting.grain)}"
        name = f"{names[kernels.index(tuned.kernel(one.candidate))]}, " if len(names) > 1 else ""
        told = f"{name}{blocks} SMs: {tuned.names[structure]}; {cut}"
        yield f"{f'from {words.size(one.begin)}':<13} {told}"


def weighed(tuned: Tuned) -> Iterator[str]:
    """The structures and the least time that each takes at some sizes, a line each; the fastest
    first."""
    width = max(map(len, tuned.names))
    sizes = "".join(f"  {words.size(size):>10}" for size in tuned.probes)
    yield f"{'':<{width}}{sizes}"
    for k in np.log(tuned.probed).mean(1).argsort(kind="stable").tolist():
        told = [f"{time:,.1f}" if np.isfinite(time) else "-" for time in tuned.probed[k]]
        times = "".join(f"  {time:>10}" for time in told)
        yield f"{tuned.names[k]:<{width}}{times}"


def _times(tuned: Tuned, one: Range) -> tuple[list[int], list[float]]:
    """The sizes of a range that were simulated, and what its candidate takes."""
    after = [r.begin for r in tuned.ranges if r.in_place == one.in_place and r.begin > one.begin]
    end = min(after, default=tuned.sizes[-1] + 1)
    inside = [s for s, size in enumerate(tuned.sizes) if one.begin <= size < end]
    times = tuned.times[int(one.in_place), one.candidate, inside]
    return [tuned.sizes[s] for s in inside], times.tolist()


def _at(sizes: tuple[int, ...] | list[int], times: np.ndarray | list[float]) -> list[object]:
    """Sizes with the time of each; null where a call is cut too often to be simulated."""
    return [
        {"size": size, "time": float(time) if np.isfinite(time) else None}
        for size, time in zip(sizes, times, strict=True)
    ]
