"""Which candidates serve all sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hccc.driver.tune import choose
from hccc.ir.arrays import I8
from hccc.ir.topology import F8

KINDS = 2


@st.composite
def matrices(draw: st.DrawFn) -> tuple[F8, I8, I8]:
    """Draws times, thread blocks and kernels of some candidates."""
    candidates, sizes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    times = draw(arrays(np.float64, (KINDS, candidates, sizes), elements=st.floats(1.0, 1e3)))
    if draw(st.booleans()):  # a kind that no candidate serves
        times[1] = np.inf
    blocks = draw(arrays(np.int64, candidates, elements=st.integers(1, 64)))
    kernel = draw(arrays(np.int64, candidates, elements=st.integers(0, 2)))
    return times, blocks, np.unique(kernel, return_inverse=True)[1].astype(np.int64)


@given(matrices(), st.integers(1, 4))
def test_a_catalogue_has_few_kernels_and_serves_every_size_with_them(
    drawn: tuple[F8, I8, I8], most: int
) -> None:
    times, blocks, kernel = drawn
    regret = choose.regrets(times, blocks)
    chosen = choose.kernels(regret, kernel, most)
    assigned = choose.assigned(regret, kernel, chosen)
    assert 1 <= len(set(chosen)) == len(chosen) <= most
    assert assigned.shape == (KINDS, times.shape[2])
    assert set(kernel[assigned].ravel().tolist()) <= set(chosen)


@given(matrices())
def test_more_kernels_are_never_slower(drawn: tuple[F8, I8, I8]) -> None:
    times, blocks, kernel = drawn
    regret = choose.regrets(times, blocks)

    def mean(most: int) -> float:
        assigned = choose.assigned(regret, kernel, choose.kernels(regret, kernel, most))
        each = np.take_along_axis(regret, assigned[:, None], 1)
        return float(each.mean() + choose.WORST * each.max())

    assert mean(3) <= mean(1) + (1 + choose.WORST) * choose.SAME


@given(matrices())
def test_what_is_best_at_all_sizes_is_chosen_alone(drawn: tuple[F8, I8, I8]) -> None:
    times, blocks, kernel = drawn
    times[:, 0] = 0.5  # half of the least of all others
    regret = choose.regrets(times, blocks)
    assert choose.best_for_all(regret) == 0
    assert choose.kernels(regret, kernel, 4) == [kernel[0]]
    assert (choose.assigned(regret, kernel, [int(kernel[0])]) == 0).all()


def test_a_hair_of_time_is_not_worth_twice_the_blocks() -> None:
    times = np.array([[[100.0, 100.0], [99.9, 99.9], [90.0, 90.0]]])
    regret = choose.regrets(times, np.array([8, 16, 64]))
    assert choose.best_for_all(regret[:, :2]) == 0
    assert choose.best_for_all(regret) == 2


def test_what_cannot_run_is_never_chosen_where_something_can() -> None:
    times = np.array([[[1.0, np.inf], [50.0, 50.0]], [[np.inf, np.inf], [9.0, 9.0]]])
    regret = choose.regrets(times, np.array([1, 1]))
    kernel = np.array([0, 1])
    assert choose.best_for_all(regret) == 1
    chosen = choose.kernels(regret, kernel, 4)
    assert choose.assigned(regret, kernel, chosen).tolist() == [[0, 1], [1, 1]]
