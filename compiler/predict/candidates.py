"""candidates: makes each of several candidates, evaluates it, and picks.

The loop behind the comparisons of `hccc sim` (`predict/simulation`) and the changes that `hccc
explain` tries (`predict/what_if`). A compilation is chosen by `driver/tune`. The caller says what a
candidate is, and what its value is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hccc.base.diagnostics import UserError

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """Something to try. make: compiles it, and may raise UserError, which is fatal if
    `required`."""

    name: str
    make: Callable[[], T]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Evaluated(Generic[T, V]):
    """A candidate that could be made, and its value."""

    name: str
    candidate: T
    value: V


def evaluate(
    candidates: Iterable[Candidate[T]],
    value: Callable[[T], V],
    on_candidate: Callable[[str], None] = lambda _: None,
) -> tuple[list[Evaluated[T, V]], dict[str, str]]:
    """Makes and evaluates all candidates, in order; returns also the reasons of failures, by name.

    on_candidate: gets each name before its turn.

    Raises:
        UserError: a required candidate cannot be made or evaluated.
    """
    evaluated: list[Evaluated[T, V]] = []
    refused: dict[str, str] = {}
    for candidate in candidates:
        on_candidate(candidate.name)
        try:
            result = candidate.make()
            evaluated.append(Evaluated(candidate.name, result, value(result)))
        except UserError as error:
            if candidate.required:
                raise
            refused[candidate.name] = error.problem.message
    return evaluated, refused


def pick(evaluated: Sequence[Evaluated[T, float]], margin: float = 0.0) -> Evaluated[T, float]:
    """Returns the first candidate whose value is within `margin` of the least."""
    least = min(one.value for one in evaluated)
    return next(one for one in evaluated if one.value <= least + margin)
