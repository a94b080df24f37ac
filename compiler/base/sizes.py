"""sizes: message sizes as people write them."""

from __future__ import annotations

import re

UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
LARGEST = 1 << 40
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", re.I | re.A)


def size_of(text: str) -> int:
    """Returns the bytes of `8`, `1K`, `4M` or `1.5G` (powers of 1024, as in nccl-tests).

    Raises:
        ValueError: it is no size, in words.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a size; write 8, 1K, 4M or 1G")
    size = int(float(match[1]) * (1 << UNITS[match[2].upper()]))
    if size > LARGEST:
        raise ValueError(f"{text!r} is more than {LARGEST >> 40}T")
    return size
