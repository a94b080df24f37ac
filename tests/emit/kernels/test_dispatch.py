"""A dispatcher's conditions hold at the ranks that are meant, and at no others."""

from __future__ import annotations

from itertools import combinations

import pytest

from hccc.emit.kernels.dispatch import condition


def subsets(n: int) -> list[tuple[int, ...]]:
    """Returns every set of `n` ranks but the empty one."""
    return [ranks for k in range(1, n + 1) for ranks in combinations(range(n), k)]


@pytest.mark.parametrize(("n", "gpus"), [(1, 0), (2, 1), (4, 2), (5, 0), (6, 2), (6, 3), (7, 0)])
def test_a_condition_holds_at_its_ranks_only(n: int, gpus: int) -> None:
    for ranks in subsets(n):
        text = condition(ranks, n, gpus)
        successive = ranks == tuple(range(ranks[0], ranks[-1] + 1))
        of_each_node = gpus > 1 and any(ranks == tuple(range(g, n, gpus)) for g in range(gpus))
        assert (text is not None) == (successive or len(ranks) == n - 1 or of_each_node)
        if text is not None:
            python = text.replace("b.rank", "rank").replace("&&", "and") or "True"
            assert tuple(rank for rank in range(n) if eval(python, {"rank": rank})) == ranks, text
