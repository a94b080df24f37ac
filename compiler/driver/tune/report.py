"""report: the candidates and choices of tuning, as facts and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hccc.driver.tune.tune import Tuned, TunedRange
from hccc.ir import text as words
from hccc.ir.topology import Topology

BLOCK = "block"
_TAKEN = {"nvidia": "SM", "amd": "CU"}
WEIGHED = (
    "least time in µs of a call (*: chosen; slower ones after fewer tries; -: given up as far "
    "slower, or as slower and long to simulate)"
)


def facts(tuned: Tuned) -> dict[str, object]:
    """Returns for JSON the structures with the least time (µs) of each at some sizes, and the
    ranges with the times at the simulated sizes in each."""
    return {
        "instances": tuned.instances,
        "structures": [
            {"name": name, "times": _at(tuned.probes, tuned.probed[k])}
            for k, name in enumerate(tuned.names)
        ],
        "ranges": [
            {
                "in_place": tuned_range.in_place,
                "begin": tuned_range.begin,
                "structure": tuned.names[tuned.candidates[tuned_range.candidate].structure],
                **tuned.candidates[tuned_range.candidate].setting._asdict(),
                "blocks": tuned.plan(tuned_range.candidate).blocks_per_rank,
                "times": _at(sizes, times),
            }
            for tuned_range in tuned.ranges
            for sizes, times in [_times(tuned, tuned_range)]
        ],
    }


def what_blocks_take(t: Topology | None) -> str:
    """Returns what each thread block takes of a device of the cluster: an SM, a CU, or, on a CPU,
    in mixed clusters and on devices that nothing is known of, only itself."""
    vendors = {device.vendor for device in t.devices} if t else set()
    return _TAKEN.get(vendors.pop(), BLOCK) if len(vendors) == 1 else BLOCK


def range_lines(tuned: Tuned, names: Sequence[str], taken: str) -> Iterator[str]:
    """Yields one line per range of calls out of place (in place, if only those are served).

    names: of the kernels (`Tuned.kernels`); a single name is left out; taken: what each thread
    block takes (`what_blocks_take`).
    """
    kernels = tuned.kernels()
    kind = tuned.ranges[0].in_place
    of_kind = [tuned_range for tuned_range in tuned.ranges if tuned_range.in_place == kind]
    for tuned_range in of_kind:
        structure, setting = tuned.candidates[tuned_range.candidate]
        blocks = tuned.plan(tuned_range.candidate).blocks_per_rank
        window = f", window {setting.window}" if setting.window else ""
        cut = (
            f"{words.count(setting.channels, 'channel')}{window}, grain {words.size(setting.grain)}"
        )
        name = (
            f"{names[kernels.index(tuned.kernel(tuned_range.candidate))]}, "
            if len(names) > 1
            else ""
        )
        line = f"{name}{words.count(blocks, taken)}: {tuned.names[structure]}; {cut}"
        yield f"{f'from {words.size(tuned_range.begin)}':<13} {line}"


def structure_lines(tuned: Tuned) -> Iterator[str]:
    """Yields a line for each structure, or for several of the same times, with the least time at
    some sizes; the fastest first, and the chosen ones marked."""
    used = {tuned.candidates[one.candidate].structure for one in tuned.ranges}
    alike: dict[tuple[str, ...], list[int]] = {}
    for k in np.log(tuned.probed).mean(1).argsort(kind="stable").tolist():
        most = tuned.plans[k].max_bytes or np.inf  # of packets
        shown = (
            f"{time:,.1f}" if np.isfinite(time) else "-" if size < most else "too long"
            for size, time in zip(tuned.probes, tuned.probed[k], strict=True)
        )
        alike.setdefault(tuple(shown), []).append(k)
    names = [_names(tuned, same, used) for same in alike.values()]
    width = max(map(len, names))
    sizes = "".join(f"  {words.size(size):>10}" for size in tuned.probes)
    yield f"{'':<{width}}{sizes}"
    for name, times in zip(names, alike, strict=True):
        yield f"{name:<{width}}" + "".join(f"  {time:>10}" for time in times)


def _names(tuned: Tuned, same: Sequence[int], used: set[int]) -> str:
    """Returns `* hpds, fuse auto (2 more alike)` of structures, a chosen one first."""
    first = min(same, key=lambda k: k not in used)
    more = f" ({len(same) - 1} more alike)" if same[1:] else ""
    return f"{'*' if first in used else ' '} {tuned.names[first]}{more}"


def _times(tuned: Tuned, tuned_range: TunedRange) -> tuple[list[int], list[float]]:
    """Returns the simulated sizes of a range, and the times of its candidate."""
    after = [
        r.begin
        for r in tuned.ranges
        if r.in_place == tuned_range.in_place and r.begin > tuned_range.begin
    ]
    end = min(after, default=tuned.sizes[-1] + 1)
    inside = [s for s, size in enumerate(tuned.sizes) if tuned_range.begin <= size < end]
    times = tuned.times[int(tuned_range.in_place), tuned_range.candidate, inside]
    return [tuned.sizes[s] for s in inside], times.tolist()


def _at(sizes: tuple[int, ...] | list[int], times: np.ndarray | list[float]) -> list[object]:
    """Returns sizes with the time of each; null if a call is cut too often to be simulated."""
    return [
        {"size": size, "time": float(time) if np.isfinite(time) else None}
        for size, time in zip(sizes, times, strict=True)
    ]
