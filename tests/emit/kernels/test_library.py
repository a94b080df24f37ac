"""A built library's description of itself: true, equal for equal plans, and found by its file."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, addressof
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.base.version import __version__
from hccc.emit.kernels.library_view import library
from hccc.emit.targets import CPU, TARGETS
from hccc.ir.catalogue import Catalogue
from hccc.ir.digest import library_digest
from hccc.ir.plan import Plan
from hccc.runtime.abi import (
    ABI,
    CallRecord,
    CommRecord,
    FaultRecord,
    LibraryRecord,
    LocalRecord,
    RankRecord,
    all_memory,
    described,
)
from hccc.runtime.cpu import aligned_zeros
from tests.emit import catalogues, plans
from tests.emit.kernels.test_cmake import ONE, built
from tests.emit.plans import written

RING = plans.compiled(plans.ring_allreduce(4, channels=2))
SHARED = (*ONE, "-DBUILD_SHARED_LIBS=ON")
LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    POINTER(CommRecord),
    POINTER(CallRecord),
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
)


def said(cmake: str, plan: Plan, place: Path) -> LibraryRecord:
    """Returns the description that the library built of `plan` gives."""
    file = next(built(cmake, written(plan, place), *SHARED).rglob(f"lib{plan.name}.so"))
    return described(ctypes.CDLL(str(file)))


@pytest.mark.slow
def test_a_library_of_one_plan(tmp_path: Path, cmake: str) -> None:
    one = said(cmake, RING, tmp_path / "k")
    assert (one.size, one.abi) == (ctypes.sizeof(LibraryRecord), ABI)
    assert (one.name, one.compiler) == (RING.name.encode(), __version__.encode())
    assert (one.target, one.collective) == (b"cpu", b"Allreduce")
    assert (one.n_ranks, one.root, one.reduces) == (4, -1, 1)
    assert one.digest == library_digest(Catalogue.of(RING)) and not one.domain
    assert (one.input_blocks(2), one.output_blocks(2)) == (1, 1)
    _adds_up(one)


def _adds_up(one: LibraryRecord) -> None:
    """Checks that the library's entry launches all ranks, with nothing else of it known."""
    n, count, window, fault = one.n_ranks, 1000, all_memory(), FaultRecord()
    memory = [(aligned_zeros(1 << 20), aligned_zeros(1 << 20)) for _ in range(n)]
    ranks = (RankRecord * n)(
        *[
            RankRecord(flags.ctypes.data, scratch.ctypes.data, addressof(window), 1, 0)
            for flags, scratch in memory
        ]
    )
    given = [np.arange(count, dtype=np.float32) * (r + 1) for r in range(n)]
    got = [np.zeros(count, np.float32) for _ in range(n)]
    local = (LocalRecord * n)(
        *[LocalRecord(a.ctypes.data, b.ctypes.data, None) for a, b in zip(given, got, strict=True)]
    )
    comm = CommRecord.of(n, addressof(ranks), addressof(fault))
    call = CallRecord.of(count=count, timeout_s=20)
    call.local, call.n_local = addressof(local), n
    assert LAUNCH(one.launch)(comm, call, b"float32", b"sum", None) == 0
    assert all(np.array_equal(x, sum(given)) for x in got)


def test_memory_domains_and_roots_are_told() -> None:
    assert library(Catalogue.of(plans.compiled(plans.broadcast(4, root=2))), TARGETS).root == 2
    assert library(Catalogue.of(RING), TARGETS).domain == ()
    assert library(catalogues.apart(), [CPU]).domain == ("    0, 0, 1, 1",)


def test_the_digest_is_of_what_is_done() -> None:
    assert library_digest(Catalogue.of(RING)) == library_digest(
        Catalogue.of(replace(RING, name="other", source="x"))
    )
    ring, fewer = Catalogue.of(RING), Catalogue.of(replace(RING, channels=1))
    assert library_digest(ring) != library_digest(fewer)
    both = catalogues.both()
    fewer = replace(both, ranges=both.ranges[:1])
    first = Catalogue.of(both.plans[0])
    assert len({library_digest(one) for one in (ring, both, fewer, first)}) == 4
