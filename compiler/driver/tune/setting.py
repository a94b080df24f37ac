"""setting: how a Plan and its calls are run, besides the structure of its primitives.

One structure (order, fusion, lowering, thread blocks) runs with any number of channels, any window
within its limit, and calls cut as finely as one likes. A Setting is a choice of the three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hccc.ir.limits import MAX_CHANNELS
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology

DEFAULT_BLOCKS = 32  # NCCL_MAX_CTAS
GRAINS = tuple(1 << k for k in range(10, 31, 2))  # bytes: each doubles the micro-batch
WINDOWS = (0, 1, 2, 4)  # micro-batches, 0: all of them


class Setting(NamedTuple):
    """channels: of every thread block; window: micro-batches, 0 for all; grain: bytes, sets the
    micro-batch of calls (`ir/micro_batch`)."""

    channels: int
    window: int
    grain: int


class Space(NamedTuple):
    """The Settings to choose among: all combinations. Each axis is ascending. alone: whether with
    the fewest channels a rank has one thread block."""

    channels: tuple[int, ...]
    windows: tuple[int, ...]
    grains: tuple[int, ...] = GRAINS
    alone: bool = False

    def middle(self) -> Setting:
        """Returns the first start of a search."""
        channels, grains = self.channels, self.grains
        return Setting(channels[len(channels) // 2], self.windows[0], grains[len(grains) // 3])

    def fine(self) -> Setting:
        """Returns another start: all channels, one micro-batch at a time, short ones."""
        window = min((w for w in self.windows if w), default=0)
        return Setting(self.channels[-1], window, self.grains[min(1, len(self.grains) - 1)])

    def nearest(self, other: Setting, channels: float) -> Setting:
        """Returns the Setting in this space most like `other`, with about `channels` channels."""
        window = other.window if other.window in self.windows else self.windows[0]
        count = min(self.channels, key=lambda count: abs(count - channels))
        return Setting(count, window, other.grain)

    def coarsest(self) -> Setting:
        """Returns all channels with the fewest micro-batches."""
        return Setting(self.channels[-1], self.windows[0], self.grains[-1])

    def all_channels(self) -> Setting:
        """Returns the start of a search that must be short: all channels, as `middle` but finer."""
        grain = self.grains[min(2, len(self.grains) - 1)]
        return Setting(self.channels[-1], self.windows[0], grain)

    def paths(self, at: Setting) -> Iterator[Iterator[Setting]]:
        """Yields the Settings from `at` along each axis, either way, nearest first; every other
        window is near, and so is a channel alone, with which ranks meet sooner."""
        channels, grains = self.channels.index(at.channels), self.grains.index(at.grain)
        for values in (self.grains[grains + 1 :], self.grains[:grains][::-1]):
            yield (at._replace(grain=value) for value in values)
        for values in (self.channels[channels + 1 :], self.channels[:channels][::-1]):
            yield (at._replace(channels=value) for value in values)
        for window in self.windows:
            if window != at.window:
                yield iter([at._replace(window=window)])
        if channels and self.alone:
            yield iter([at._replace(channels=self.channels[0])])


def space(plan: Plan, blocks: int, channels: int | None = None) -> Space:
    """Returns the space of `plan`. blocks: the most thread blocks of a rank, all channels;
    channels: a required number, None for any."""
    each = max(1, int(plan.n_tb.max(initial=1)))
    most = min(max(1, blocks // each), MAX_CHANNELS)
    counts = [1 << k for k in range(most.bit_length()) if 1 << k < most] + [most]
    largest = plan.largest_window
    windows = tuple(sorted({largest, *(w for w in WINDOWS if 0 < w < largest or not largest)}))
    return Space((channels,) if channels else tuple(counts), windows, alone=each == 1)


def most_blocks(t: Topology) -> int:
    """Returns the default limit of thread blocks of a rank: NCCL's, or a quarter of the fewest SMs
    of any device if that is more; never more than half of them."""
    known = [device.sms for device in t.devices if device.sms]
    if not known:
        return DEFAULT_BLOCKS
    return max(1, min(min(known) // 2, max(DEFAULT_BLOCKS, min(known) // 4)))


def applied(plan: Plan, setting: Setting) -> Plan:
    """Returns `plan` with a setting."""
    return replace(plan, channels=setting.channels, window=setting.window, grain=setting.grain)
