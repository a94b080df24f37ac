"""limits: the largest sizes that hccc compiles, for every language and every IR."""

from __future__ import annotations

MAX_RANKS = 1 << 17
MAX_CHUNKS = 1 << 26
MAX_CHANNELS = 64
MAX_WARPS = 32  # of a thread block
