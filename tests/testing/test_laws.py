"""The laws that hold for every program and every way to compile it, on random programs.

A few dozen examples always; `-m slow` runs thousands.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import reduces
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir import plan_check
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType
from hccc.ir.program import Program
from hccc.passes.verify import verify
from hccc.proofs.race import race
from hccc.testing import (
    REDUCE_OPS,
    Mutant,
    collectives,
    correct_programs,
    exact_inputs,
    execute,
    expected,
    is_correct,
    mutants,
    options,
    run,
    text,
)
from hccc.testing.judge import first_fault
from hccc.testing.reference import Data
from tests.marks import LONG
from tests.sabotage import without_wait

SLOW_TO_GROW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def law(
    *strategies: st.SearchStrategy[Any], always: int, slow: int
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Makes a test over random examples: `always` many by default, `slow` many with -m slow."""

    def decorate(body: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize(
            "examples", [always, pytest.param(slow * LONG, marks=pytest.mark.slow)]
        )
        def test(examples: int) -> None:
            at_length = settings(
                max_examples=examples, deadline=None, suppress_health_check=SLOW_TO_GROW
            )
            at_length(given(*strategies)(body))()

        test.__doc__ = body.__doc__
        return test

    return decorate


def accepts(program: Program) -> bool:
    try:
        verify(program)
    except UserError as error:
        assert error.problem.code.startswith("E2")
        return False
    return True


def same(a: Sequence[Data], b: Sequence[Data]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.slow
@law(correct_programs(), always=100, slow=200)
def test_programs_grown_by_construction_are_right(program: Program) -> None:
    assert is_correct(program)
    assert accepts(program)


@pytest.mark.slow
@law(mutants(), always=300, slow=800)
def test_verify_tells_right_from_wrong(mutant: Mutant) -> None:
    note(f"{mutant.mutation} at {mutant.what}\n{text(mutant.program)}")
    assert accepts(mutant.program) == is_correct(mutant.program)


@law(correct_programs(), st.sampled_from(REDUCE_OPS), st.integers(0, 9), always=40, slow=200)
def test_a_correct_program_gives_what_its_collective_defines(
    program: Program, op: str, seed: int
) -> None:
    c = program.collective
    real = reduces("float32", op) and op != "prod"
    for dtype in (np.int64, np.float32 if real else np.uint8):
        x = exact_inputs(c, dtype, (2,), seed=seed)
        assert same(run(program, x, op, dtype), expected(c, x, op, dtype))


RUN = st.tuples(
    st.integers(1, 7),
    st.sampled_from([1, 2, None]),
    st.sampled_from(REDUCE_OPS),
    st.booleans(),
    st.integers(0, 2**16),
)


@pytest.mark.slow
@law(correct_programs(), options(), RUN, always=60, slow=300)
def test_any_options_give_the_result(
    program: Program, way: Options, how: tuple[int, int | None, str, bool, int]
) -> None:
    """Proved, and run: in place or not, any window, any interleaving, 1, 2 and 8 slots."""
    micro_batches, window, op, in_place, seed = how
    plan = compile_program(program, way).plan
    plan_check.check(plan)
    op, in_place = op if plan.averages or op != "avg" else "sum", in_place and plan.in_place
    x = exact_inputs(program.collective, np.int64, (micro_batches,), seed=seed)
    want = run(program, x, op, np.int64)
    got = execute(plan, x, op, in_place=in_place, window=window, seed=seed)
    assert same(got, want)


@pytest.mark.slow
@law(correct_programs(), options(), st.integers(0, 2**32), always=60, slow=300)
def test_a_call_of_any_count_gives_the_result(program: Program, way: Options, seed: int) -> None:
    """Chunks, parts and micro-batches of every length, empty ones too, in several channels."""
    rng = Random(seed)
    plan = compile_program(program, way).plan
    assert first_fault(plan, lambda n: rng.randrange(n + 1) if n > 0 else 0, 3) is None


@pytest.mark.slow
@law(correct_programs(max_ranks=5, max_transfers=24), options(), always=25, slow=150)
def test_every_wait_is_needed(program: Program, way: Options) -> None:
    plan = compile_program(program, way).plan
    for k in range(len(plan.waits.index)):
        with pytest.raises(UserError, match="nothing orders"):
            race(without_wait(plan, k))


@law(
    mutants(correct_programs(max_ranks=4, max_transfers=16)),
    options(prove=True),
    always=15,
    slow=400,
)
def test_nothing_wrong_gets_past_the_driver(mutant: Mutant, way: Options) -> None:
    if is_correct(mutant.program):
        compile_program(mutant.program, way)
    else:
        with pytest.raises(UserError):
            compile_program(mutant.program, way)


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_every_collective_and_mutation_is_reached(op: OpType) -> None:
    """The strategies are not vacuous."""
    seen = []

    @settings(max_examples=30, database=None, derandomize=True, suppress_health_check=SLOW_TO_GROW)
    @given(mutants(correct_programs(op)))
    def collect(mutant: Mutant) -> None:
        assert mutant.program.collective.op is op
        seen.append((mutant.mutation, is_correct(mutant.program)))

    collect()
    assert len({name for name, _ in seen}) >= 5
    assert any(not right for _, right in seen)


@law(collectives(max_ranks=6), always=30, slow=300)
def test_collectives_are_within_bounds(c: Collective) -> None:
    assert 2 <= c.n_ranks <= 6
    assert 1 <= c.chunks_per_block <= 3
    assert 0 <= c.root < c.n_ranks
