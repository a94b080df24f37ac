"""micro_batch: the default micro-batch, for calls that name none.

A block that moves k parts in micro-batches of m bytes at B GB/s pays α for each micro-batch, and
filling and draining the pipeline takes f more of them: k · part · (α/m + 1/B) + f · m/B µs, least
where m² = part · (α · B · k/f). A plan's *grain*, in bytes, is the bracket: `driver/tune` finds it
for a cluster; GRAIN is for plans without a cluster. `benchmarks/micro_batches.py` measures the
loss against the best micro-batch of every call.

`runtime/include/hccc/layout.h` has the same rule; a test compares them.
"""

from __future__ import annotations

GRAIN = 8 << 10
SMALLEST, LARGEST = 4 << 10, 4 << 20  # micro-batches
FINEST, COARSEST = 1 << 10, 1 << 30  # grains
COUNTED = 1 << 31  # messages: the largest distance of two counters of a queue, which wrap at 2^32
MOST_QUEUED_BATCHES = 1 << 24  # micro-batches of a launch whose messages go through queues


def default_micro_batch(part: int, grain: int = GRAIN) -> int:
    """Returns the power of two nearest in ratio to √(part · grain), SMALLEST to LARGEST; all in
    bytes."""
    micro, wanted = SMALLEST, float(part) * grain
    while micro < LARGEST and 2.0 * micro * micro < wanted:
        micro *= 2
    return micro
