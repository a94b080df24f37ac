"""trials: makes each of several things to compare, and evaluates it.

The loop behind the comparisons of `hccc sim` (`predict/simulation`) and the changes that `hccc
explain` tries (`predict/what_if`). A compilation is chosen by `driver/tune`. The caller says what
is made, and what its value is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hccc.base.diagnostics import UserError
from hccc.base.progress import far

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Trial(Generic[T]):
    """One thing to try. make: compiles it, and may raise UserError, which is fatal if
    `required`."""

    name: str
    make: Callable[[], T]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Evaluated(Generic[T, V]):
    """A trial that could be made, its result, and the value of that."""

    name: str
    result: T
    value: V


def evaluate(
    trials: Sequence[Trial[T]],
    value: Callable[[T], V],
    on_trial: Callable[[str], None] = lambda _: None,
) -> tuple[list[Evaluated[T, V]], dict[str, str]]:
    """Makes and evaluates all trials, in order; returns also the reasons of failures, by name.

    on_trial: gets each name before its turn.

    Raises:
        UserError: a required trial cannot be made or evaluated.
    """
    evaluated: list[Evaluated[T, V]] = []
    refused: dict[str, str] = {}
    for k, trial in enumerate(trials):
        on_trial(trial.name)
        far(k, len(trials))
        try:
            result = trial.make()
            evaluated.append(Evaluated(trial.name, result, value(result)))
        except UserError as error:
            if trial.required:
                raise
            refused[trial.name] = error.problem.message
    return evaluated, refused
