"""Jobs over libraries of real vendors, in environments of their own."""

from __future__ import annotations

import pytest

from hccc.ir.job import vendor_clusters
from hccc.synth.builtin.hetccl import OPS
from tests.communicator.world import start
from tests.job.test_loaded import STANDARD, jobs_of, wrong_calls
from tests.vendor.conftest import installed

pytestmark = pytest.mark.slow


def _wrong(sizes: dict[str, tuple[list[int], list[int]]], batches: int) -> list[list[str]]:
    """Returns each rank's wrong calls, of all collectives. sizes: of each vendor its ranks and its
    border ranks."""
    clusters = [(name, *of, [1] * len(of[1])) for name, of in sizes.items()]
    v = vendor_clusters(clusters)
    files = {name: installed(name) if name != "own" else "" for name in sizes}
    vendor = {r: (name, files[name]) for name, (ranks, _) in sizes.items() for r in ranks}
    each = [vendor[r] for r in range(v.n_ranks)]
    started = start(v.n_ranks, wrong_calls, jobs_of(v, OPS, 1), batches, each, environment=STANDARD)
    return list(started.outcomes(300).values())


def test_mpich_beside_own() -> None:
    """Ranks of both are interleaved."""
    assert _wrong({"mpich": ([0, 2, 4], [0, 4]), "own": ([1, 3], [1, 3])}, 2) == [[]] * 5


def test_oneccl_beside_mpich() -> None:
    assert _wrong({"oneccl": ([0, 1], [0]), "mpich": ([2, 3], [2, 3])}, 1) == [[]] * 4
