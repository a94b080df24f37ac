"""validated: the result of a validation: the amount compared, or the reason why nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Validated:
    """The texts do what their plan says: the targets, and how much each of their texts does."""

    targets: tuple[str, ...]
    primitives: int
    operands: int
    waits: int
    posts: int
    neighbours: int


def together(results: Sequence[Validated]) -> Validated:
    """Adds up the results for several plans of one library."""
    counts = (
        sum(getattr(result, name) for result in results)
        for name in ("primitives", "operands", "waits", "posts", "neighbours")
    )
    return Validated(results[0].targets, *counts)


@dataclass(frozen=True, slots=True)
class Unvalidated:
    """The texts were not compared with the plan: the targets, and the reason."""

    targets: tuple[str, ...]
    why: str
