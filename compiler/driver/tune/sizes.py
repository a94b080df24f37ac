"""sizes: the message sizes to tune for, from a range such as `1K..4G`."""

from __future__ import annotations

import re

from hccc.base.diagnostics import fail
from hccc.base.sizes import UNITS

STEP = 16  # the ratio of successive sizes
MOST = 1 << 40  # more than any device holds
_SIZE = re.compile(r"(\d{1,16})([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parsed(text: str) -> tuple[int, ...]:
    """Returns the sizes of a range, `STEP` times apart, with both its ends: `64K`, `1K..4G`.

    Raises:
        UserError: E410 it is no size and no range.
    """
    ends = [_bytes(part, text) for part in text.split("..")]
    if len(ends) > 2 or ends[0] > ends[-1]:
        raise _wrong(text)
    sizes = [ends[0]]
    while sizes[-1] * STEP < ends[-1]:
        sizes.append(sizes[-1] * STEP)
    return (*sizes, ends[-1]) if ends[-1] > sizes[-1] else tuple(sizes)


def range_text(smallest: int, largest: int) -> str:
    """Writes the sizes of calls as a range that `parsed` reads."""
    least = min(max(1, smallest), MOST)
    return f"{least}..{min(max(least, largest), MOST)}"


def _bytes(part: str, text: str) -> int:
    found = _SIZE.fullmatch(part.strip())
    if not found:
        raise _wrong(text)
    size = int(found[1]) << UNITS[found[2].upper()]
    if not 1 <= size <= MOST:
        raise _wrong(text)
    return size


def _wrong(text: str) -> Exception:
    help = "a size such as 64M, or a range such as 1K..4G, from 1 byte to 1 TiB"
    return fail("E410", f"--sizes {text!r} is no size and no range of sizes", help=help)
