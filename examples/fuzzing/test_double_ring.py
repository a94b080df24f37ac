"""A downstream project's tests of its own AllReduce generator, with hccc.testing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.lang.transfer import load as transfer
from hccc.passes.verify import verify
from hccc.testing import (
    Mutant,
    assert_correct,
    correct_programs,
    exact_inputs,
    execute,
    is_correct,
    mutants,
    run,
    text,
)


def double_ring(n: int) -> Program:
    """Makes an AllReduce over two rings in opposite directions, each with half of 2n chunks."""
    lines = [f'ResCCLAlgo(nRanks={n}, OpType="Allreduce", nChunks={2 * n}, AlgoName="double"):']
    for base, way in ((0, 1), (n, -1)):
        for s in range(n - 1):
            for r in range(n):
                chunk = base + (r - way * s) % n
                lines.append(f"    transfer({r}, {(r + way) % n}, {s}, {chunk}, rrc)")
        for s in range(n - 1):
            for r in range(n):
                chunk = base + (r + way - way * s) % n
                lines.append(f"    transfer({r}, {(r + way) % n}, {n - 1 + s}, {chunk}, recv)")
    return transfer.parse(Source("double_ring", "\n".join(lines) + "\n"))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_every_size_is_right(n: int) -> None:
    assert_correct(double_ring(n))


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(2, 5),
    micro_batches=st.integers(1, 4),
    window=st.sampled_from([1, 2, None]),
    in_place=st.booleans(),
    interleaving=st.integers(0, 1000),
)
def test_the_plan_gives_the_same_data(
    n: int, micro_batches: int, window: int | None, in_place: bool, interleaving: int
) -> None:
    program = double_ring(n)
    plan = compile_program(program, Options()).plan
    inputs = exact_inputs(program.collective, np.int64, (micro_batches,))
    want = run(program, inputs, "sum", np.int64)
    got = execute(plan, inputs, "sum", in_place=in_place, window=window, seed=interleaving)
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@settings(max_examples=50, deadline=None)
@given(mutants(st.builds(double_ring, st.integers(2, 4))))
def test_what_is_wrong_is_refused(mutant: Mutant) -> None:
    try:
        verify(mutant.program)
        accepted = True
    except UserError:
        accepted = False
    assert accepted == is_correct(mutant.program), text(mutant.program)


def rotated(program: Program, by: int) -> Program:
    """Renames all ranks: r becomes r + by, which keeps an AllReduce correct."""
    lines = text(program).splitlines()
    n = program.collective.n_ranks
    moved = [
        f"    transfer({(t['src'] + by) % n}, {(t['dst'] + by) % n}, {t['step']}, {t['chunk']}, "
        f"{'rrc' if t['op'] else 'recv'})"
        for t in program.transfers
    ]
    return transfer.parse(Source("rotated", "\n".join([lines[0], *moved]) + "\n"))


@settings(max_examples=30, deadline=None)
@given(correct_programs(OpType.ALLREDUCE), st.integers(1, 7))
def test_rotating_keeps_programs_right(program: Program, by: int) -> None:
    assert_correct(rotated(program, by))
