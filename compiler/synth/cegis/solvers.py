"""solvers: values for a LinearModel, from Z3 or from HiGHS, within a time limit.

Z3 gets clauses and cardinality constraints over Booleans; sums over integers or bit-vectors take
it 10 to 140 times as long. HiGHS, through SciPy, gets an integer program without an objective.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from hccc.base.interruptible import interruptible
from hccc.ir.arrays import I8
from hccc.synth.cegis.model import LinearModel
from hccc.synth.common.integer_programs import no_output


class Verdict(Enum):
    """The answer of a solver about a LinearModel."""

    FOUND = "found"
    NONE = "none exists"
    UNKNOWN = "out of time"
    LARGE = "too large to ask"


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """values: i8[variables] where some were found."""

    verdict: Verdict
    values: I8 | None = None


def solve(model: LinearModel, solver: str, seconds: float, seed: int = 0) -> Answer:
    """Finds values that satisfy `model`, by "z3" or "highs".

    Raises:
        KeyboardInterrupt: at once, though the solver is busy.
    """
    if seconds <= 0:
        return Answer(Verdict.UNKNOWN)
    lengths = np.diff(model.ptr)
    impossible = (lengths == 0) & ((model.low > 0) | (model.high < 0))
    if impossible.any():
        return Answer(Verdict.NONE)
    if not len(model):
        return Answer(Verdict.FOUND, np.zeros(model.variables, np.int64))
    return SOLVERS[solver](model, seconds, seed)


def _highs(model: LinearModel, seconds: float, seed: int) -> Answer:
    """Asks HiGHS. `seed` changes nothing: SciPy passes none on."""
    from scipy.optimize import (  # type: ignore[import-untyped]
        Bounds,
        LinearConstraint,
        milp,
    )
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

    shape = (len(model), model.variables)
    matrix = csr_array((model.coefficient.astype(float), model.index, model.ptr), shape=shape)
    with no_output():
        found = interruptible(milp)(
            np.zeros(model.variables),
            integrality=np.ones(model.variables),
            bounds=Bounds(0, model.upper),
            options={"time_limit": seconds},
            constraints=LinearConstraint(matrix, model.low, model.high),
        )
    if found.x is not None:
        return Answer(Verdict.FOUND, np.rint(found.x).astype(np.int64))
    return Answer(Verdict.NONE if found.status == 2 else Verdict.UNKNOWN)


def _z3(model: LinearModel, seconds: float, seed: int) -> Answer:
    import z3  # type: ignore[import-untyped]

    begin = time.monotonic()
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    interruptible(solver.from_string)("\n".join(_script(model)))
    solver.set("random_seed", seed)
    solver.set("ctrl_c", False)  # or Z3 takes Ctrl-C for itself, and the search goes on
    solver.set("timeout", max(1, int((seconds - (time.monotonic() - begin)) * 1000)))
    try:
        verdict = interruptible(solver.check)()
    except BaseException:
        context.interrupt()
        raise
    if verdict == z3.unknown:
        return Answer(Verdict.UNKNOWN)
    if verdict == z3.unsat:
        return Answer(Verdict.NONE)
    true = np.zeros(int(model.upper.sum()), np.int64)
    found: Any = solver.model()
    for name in found:
        if z3.is_true(found[name]):
            true[int(name.name()[1:])] = 1
    return Answer(Verdict.FOUND, np.add.reduceat(true, _first(model)))


def _first(model: LinearModel) -> I8:
    """Returns the first Boolean of each variable: to Z3 a variable is as many as its upper
    bound."""
    return np.cumsum(model.upper) - model.upper


def _script(model: LinearModel) -> Iterator[str]:
    """Yields `model` in SMT-LIB 2."""
    booleans = int(model.upper.sum())
    yield from (f"(declare-const x{i} Bool)" for i in range(booleans))
    first = _first(model).tolist()
    upper = model.upper.tolist()
    index, coefficient = model.index.tolist(), model.coefficient.tolist()
    ptr = model.ptr.tolist()
    rows = zip(ptr, ptr[1:], model.low.tolist(), model.high.tolist(), strict=False)
    for begin, end, low, high in rows:
        terms: list[tuple[int, str]] = []
        for j in range(begin, end):
            a, x = coefficient[j], index[j]
            terms.extend((a, f"x{i}") for i in range(first[x], first[x] + upper[x]))
        if high != np.inf:
            yield f"(assert {_at_most(terms, int(high))})"
        if low != -np.inf:
            yield f"(assert {_at_most([(-a, x) for a, x in terms], -int(low))})"


def _at_most(terms: list[tuple[int, str]], bound: int) -> str:
    """Returns Σ <= bound in SMT-LIB 2, with a negated Boolean for each negative coefficient: -x is
    (not x) - 1."""
    bound -= sum(a for a, _ in terms if a < 0)
    literals = [x if a > 0 else f"(not {x})" for a, x in terms]
    sizes = [abs(a) for a, _ in terms]
    total = sum(sizes)
    if total <= bound:
        return "true"
    if bound < 0:
        return "false"
    if set(sizes) == {1} and bound == total - 1:  # not all of them: a clause
        return "(or " + " ".join(x if a < 0 else f"(not {x})" for a, x in terms) + ")"
    if set(sizes) == {1}:
        return f"((_ at-most {bound}) {' '.join(literals)})"
    return f"((_ pble {bound} {' '.join(map(str, sizes))}) {' '.join(literals)})"


SOLVERS: dict[str, Callable[[LinearModel, float, int], Answer]] = {"highs": _highs, "z3": _z3}
