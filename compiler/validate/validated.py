"""validated: what validation tells of texts that do what their plan says, or why it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Validated:
    """What was held against the plan: the targets, and how much each of their texts does."""

    targets: tuple[str, ...]
    primitives: int
    operands: int
    waits: int
    posts: int
    neighbours: int


def together(found: Sequence[Validated]) -> Validated:
    """What was held against several plans of one library."""
    counts = (
        sum(getattr(one, name) for one in found)
        for name in ("primitives", "operands", "waits", "posts", "neighbours")
    )
    return Validated(found[0].targets, *counts)


@dataclass(frozen=True, slots=True)
class Unvalidated:
    """What was not held against the plan: the targets, and why not."""

    targets: tuple[str, ...]
    why: str
