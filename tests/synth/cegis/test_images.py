"""images: moves that a cluster does not notice, and schedules moved by them."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.synth.cegis.fill import fill
from hccc.synth.cegis.images import images, moves
from hccc.synth.cegis.synthesize import EMPTY
from hccc.synth.greedy.schedule import Schedule, load, violations
from tests.synth.greedy.chunked_clusters import example, gather


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("heteccl-h20-4+8", 4),
        ("heteccl-h20-4x2+8x2", 4),
        ("heteccl-h20-4x2+8-fault-4", 1),  # 3 GPUs in a node
        ("heteccl-fig10", 2),
        ("syccl-h800-64", 4),
    ],
)
def test_moves_keep_routes(name: str, count: int) -> None:
    c = example(name)
    to = moves(c)
    assert to.shape == (count, c.n)
    assert (to[0] == np.arange(c.n)).all()
    for move in to:
        assert sorted(move) == list(range(c.n))
        assert (c.node[move] == c.node).all()
        u, v = np.divmod(np.arange(c.n**2), c.n)
        here, there = c.use[u * c.n + v], c.use[move[u] * c.n + move[v]]
        rates = [np.where(use >= 0, c.capacity[use], use) for use in (here, there)]
        assert (rates[0] == rates[1]).all()


def test_images_together_load_the_ranks_of_a_node_alike() -> None:
    c = example("heteccl-h20-4+8")
    s, to, owner = fill(c, gather(c), EMPTY), moves(c), np.arange(c.n)
    chunk = owner * len(to) + np.arange(len(to))[:, None]
    made = images(s, owner, to, chunk)
    assert len(made) == 4 * len(s) and made.steps == s.steps
    for k in range(len(to)):
        own = made.chunk % len(to) == k
        one = Schedule(made.chunk[own] // len(to), made.src[own], made.dst[own], made.step[own])
        assert violations(one, c, gather(c)) == []
    sent = np.bincount(made.src, minlength=c.n)
    assert len(set(sent[:4])) == 1 and len(set(sent[4::2])) == len(set(sent[5::2])) == 1
    nics = load(made, c)[c.network]
    assert len(np.unique(nics)) <= 4
