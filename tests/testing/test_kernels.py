"""Program, Plan and compiled CPU kernel give the same data, bit for bit."""

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from hccc.base.dtypes import OPS, reduces
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir.program import Program
from hccc.runtime.layout import DTYPES
from hccc.runtime.request import LaunchRequest
from hccc.testing import REDUCE_OPS, correct_programs, execute, options, run, text
from hccc.testing.kernels import launch, wrong_elements
from tests.health_checks import EVERY_CHECK
from tests.marks import LONG

pytestmark = pytest.mark.usefixtures("flags_of_users")

REDUCTIONS = [(dtype, op) for dtype in sorted(DTYPES) for op in OPS if reduces(dtype, op)]

MANY = pytest.mark.parametrize("examples", [4, pytest.param(10 * LONG, marks=pytest.mark.slow)])


def at_length(examples: int) -> settings:
    """Returns settings for that many examples."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=EVERY_CHECK)


def rough(program: Program, dtype: str, elements: int, seed: int) -> list[np.ndarray]:
    """Draws send buffers [slots, elements] whose floating sums are rounded, so that order shows."""
    c, dice = program.collective, np.random.default_rng(seed)
    slots = [c.input_blocks(r) * c.chunks_per_block for r in range(c.n_ranks)]
    if dtype == "float32":
        return [dice.standard_normal((n, elements)).astype(dtype) for n in slots]
    info = np.iinfo(dtype)
    return [dice.integers(info.min, info.max, (n, elements), dtype, endpoint=True) for n in slots]


@pytest.mark.slow
def test_program_plan_and_kernel_agree_on_rounded_data() -> None:
    """Sums that depend on the order of addition, wrapping integers, in and out of place."""

    @at_length(10 * LONG)
    @given(
        correct_programs(max_ranks=6),
        options(prove=False),
        st.sampled_from(["float32", "int32", "uint8"]),
        st.sampled_from(REDUCE_OPS),
        st.booleans(),
        st.integers(0, 2**16),
    )
    def agree(
        program: Program, way: Options, dtype: str, op: str, in_place: bool, seed: int
    ) -> None:
        assume(reduces(dtype, op))
        note(text(program))
        plan = compile_program(program, way).plan
        each = 16 // np.dtype(dtype).itemsize * plan.channels  # elements of a chunk, no padding
        x = rough(program, dtype, each, seed)
        want = run(program, x, op, dtype)
        step = execute(plan, x, op, in_place=in_place, seed=seed)
        count = program.collective.chunks_per_block * each
        request = LaunchRequest(count, dtype, op, in_place, timeout=20.0)
        kernel = launch(plan, [a.ravel() for a in x], request)
        for a, b, c in zip(want, step, kernel, strict=True):
            assert np.array_equal(b.ravel(), c), "the kernel and the plan differ"
            assert np.array_equal(a.ravel(), b.ravel()), "the plan and the program differ"

    agree()


@pytest.mark.slow
@MANY
def test_kernels_give_the_collectives_result(examples: int) -> None:
    """Every type, operation, count, micro-batch and window; plans saved and read again."""

    @at_length(examples)
    @given(
        correct_programs(max_ranks=6),
        options(prove=False),
        st.builds(
            LaunchRequest,
            count=st.one_of(st.integers(0, 40), st.integers(0, 20_000)),
            dtype=st.shared(st.sampled_from(REDUCTIONS), key="reduction").map(lambda pair: pair[0]),
            op=st.shared(st.sampled_from(REDUCTIONS), key="reduction").map(lambda pair: pair[1]),
            micro_batch=st.sampled_from([64, 1024, 1 << 18]),
            window=st.sampled_from([0, 1, 2]),
            timeout=st.just(20.0),
            workers=st.integers(0, 2),
        ),
    )
    def right(program: Program, way: Options, request: LaunchRequest) -> None:
        note(text(program))
        plan = compile_program(program, way).plan
        assert wrong_elements(plan_json.loads(plan_json.dumps(plan)), request) == 0

    right()
