"""Jobs over libraries of real vendors, in environments of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hccc.base.dtypes import NAMES, reduces
from hccc.ir.collective import UNEVEN, OpType
from hccc.ir.job import VendorClusters, vendor_clusters
from hccc.launch.job_runs import OPS as JOB_OPS
from hccc.runtime.communicator import Communicator
from hccc.runtime.job.loaded import LoadedJob
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.vendor.engines import VendorCall, load
from hccc.synth.builtin.hetccl import OPS, hetccl
from tests.communicator.world import start
from tests.job.test_loaded import STANDARD, call_of, jobs_of, wrong_calls, wrong_uneven_calls
from tests.vendor.conftest import installed

pytestmark = pytest.mark.slow


def _wrong(sizes: dict[str, tuple[list[int], list[int]]], batches: int) -> list[list[str]]:
    """Returns each rank's wrong calls, of all collectives, then of all whose blocks have lengths of
    their own. sizes: of each vendor its ranks and its border ranks."""
    clusters = [(name, *of, [1] * len(of[1])) for name, of in sizes.items()]
    v = vendor_clusters(clusters)
    files = {name: installed(name) if name != "own" else "" for name in sizes}
    vendor = {r: (name, files[name]) for name, (ranks, _) in sizes.items() for r in ranks}
    each = [vendor[r] for r in range(v.n_ranks)]
    found: list[list[str]] = []
    for body, ops in ((wrong_calls, OPS), (wrong_uneven_calls, UNEVEN)):
        jobs = jobs_of(v, ops, 1, uneven=ops is UNEVEN)
        started = start(v.n_ranks, body, jobs, batches, each, environment=STANDARD)
        found += started.outcomes(300).values()
    return found


def wrong_at_borders(
    c: Communicator, v: VendorClusters, vendors: Sequence[tuple[str, str]], file: str
) -> tuple[int, list[str]]:
    """Has libraries reduce at borders. Returns the number of types and reductions that `file` has,
    and those of them that are wrong at this rank."""
    vendor, own = vendors[c.rank]
    allreduce, engine = hetccl(v, OpType.ALLREDUCE), load("mpich", file)
    words = (c.handle, c.rank, allreduce, vendor, own, [(0, 2)])
    LoadedJob(*words, by_library=vendor == "mpich").use()
    kinds = [(dtype, op) for dtype in NAMES for op in JOB_OPS if reduces(dtype, op)]
    able = [
        k for k in kinds if engine.can(VendorCall.REDUCE, k[0], "sum" if k[1] == "avg" else k[1])
    ]
    wrong = []
    for seed, ((dtype, op), in_place) in enumerate((k, at) for k in able for at in (False, True)):
        made = call_of(c, allreduce, Pattern(allreduce.collective, dtype, op, 321, seed), in_place)
        wrong += [f"{op} of {dtype}, in place {in_place}: {made}"] * bool(made)
    return len(able), wrong


def test_mpich_reduces_at_its_border(tmp_path: Path) -> None:
    """Of three ranks, whose last two are a pair too; beside it is a rank alone."""
    v = vendor_clusters([("mpich", [0, 2, 3], [0, 3], [1, 1]), ("alone", [1], [1], [1])])
    file = installed("mpich")
    vendors = [("own" if r == 1 else "mpich", file) for r in range(4)]
    said = {"HCCC_DEBUG": "INFO", "HCCC_DEBUG_FILE": f"{tmp_path}/log.%p"}
    started = start(4, wrong_at_borders, v, vendors, file, environment=STANDARD | said)
    found = list(started.outcomes(100).values())
    n = found[0][0]
    assert n > 80 and found == [(n, [])] * 4
    log = "".join(one.read_text() for one in tmp_path.glob("log.*"))
    # An average adds, and says no more. Border ranks say it.
    assert log.count("sum of float64 at borders: by MPICH 5.0.2, as is asked") == 2
    assert log.count("sum of float64 at borders: by the host") == 1
    assert log.count("at borders: by MPICH") == 2 * log.count("at borders: by the host")


def test_mpich_beside_own() -> None:
    """Ranks of both are interleaved."""
    assert _wrong({"mpich": ([0, 2, 4], [0, 4]), "own": ([1, 3], [1, 3])}, 2) == [[]] * 5 * 2


def test_oneccl_beside_mpich() -> None:
    assert _wrong({"oneccl": ([0, 1, 2, 3], [0, 2]), "mpich": ([4, 5], [4, 5])}, 1) == [[]] * 6 * 2


def test_three_vendor_clusters() -> None:
    """Of three, one and two ranks; one alone needs no library."""
    three = {"mpich": ([0, 1, 2], [0, 2]), "own": ([3], [3]), "oneccl": ([4, 5], [5])}
    assert _wrong(three, 2) == [[]] * 6 * 2
