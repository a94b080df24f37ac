"""expression: what a reduction of one's own computes of two values, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hccc.base.dtypes import BY_NAME

# What an operation takes (truth values, or else numbers) and makes.
TRUTH, NUMBER = "a truth value", "a number"
_TRUTHS = frozenset({"any", "every", "deny"})
_ASKS = frozenset({"equal", "unequal", "less", "more", "most", "least"})
# The kinds of dtypes that an operation is for, where it is not for all.
KINDS = {"divide": "f", "both": "iu", "either": "iu", "differ": "iu", "flip": "iu"}
ALL_KINDS = "iuf"
FUNCTIONS = {"abs": ("magnitude", 1), "fabs": ("magnitude", 1), "min": ("smaller", 2)}
FUNCTIONS["max"] = ("larger", 2)


@dataclass(frozen=True, slots=True)
class Expression:
    """An operation on the values of others; `a`, `b`, or `number` with its text.

    place: where it is in the text of its reduction, from and up to which character.
    """

    operation: str
    parts: tuple[Expression, ...] = ()
    number: str = ""
    place: tuple[int, int] = (0, 0)

    def each(self) -> Iterator[Expression]:
        """Yields what it is made of, and then itself."""
        for part in self.parts:
            yield from part.each()
        yield self

    @property
    def makes(self) -> str:
        """What its value is: TRUTH or NUMBER."""
        return TRUTH if self.operation in _TRUTHS or self.operation in _ASKS else NUMBER

    def takes(self, part: int) -> str:
        """Returns what its part of this number must be."""
        picks = self.operation == "pick" and part == 0
        return TRUTH if picks or self.operation in _TRUTHS else NUMBER


@dataclass(frozen=True, slots=True)
class OwnReduction:
    """A reduction of one's own. text: all of it, in one line; kinds: of the dtypes that all its
    operations are for."""

    name: str
    text: str
    expression: Expression
    kinds: str

    def has(self, dtype: str) -> bool:
        """Tells whether it is for a dtype: whether that has the operations and the numbers."""
        if BY_NAME[dtype].kind not in self.kinds:
            return False
        return BY_NAME[dtype].kind == "f" or self._largest() <= _most(dtype)

    def _largest(self) -> int:
        numbers = (one.number for one in self.expression.each() if one.number)
        return max((int(number) for number in numbers), default=0)


def _most(dtype: str) -> int:
    """Returns the largest integer of a dtype."""
    return int((1 << 8 * BY_NAME[dtype].bytes - (BY_NAME[dtype].kind == "i")) - 1)
