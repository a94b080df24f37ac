"""Kernels of imported schedules between pages that must not be touched, at every small count."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.base.diagnostics import Source
from hccc.interop.import_msccl import import_msccl
from hccc.ir.plan import Plan
from hccc.proofs.proof import Proof
from hccc.proofs.prove import check_plan
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import buffer_elements
from hccc.runtime.request import LaunchRequest
from hccc.testing.kernels import built

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "tests" / "interop" / "data"
CORPUS = ROOT.parent / "shared" / "corpus" / "sccl_xml"  # CI has it beside the clone
PAGE = mmap.PAGESIZE
COUNTS = [*range(20), 31, 61, 62, 1023]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses mprotect of the C library")


class Fenced:
    """An array that ends, or begins, at a forbidden page."""

    def __init__(self, elements: int, at_end: bool) -> None:
        size = -(-max(4 * elements, 1) // PAGE) * PAGE
        self._memory = mmap.mmap(-1, size + 2 * PAGE)
        whole = np.frombuffer(self._memory, np.uint8)
        self._protect(whole, 0, 0)
        self._protect(whole, PAGE + size, 0)
        begin = PAGE + (size - 4 * elements if at_end else 0)
        self.array: NDArray[np.int32] = whole[begin : begin + 4 * elements].view(np.int32)

    def _protect(self, whole: NDArray[np.uint8], offset: int, protection: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(whole.ctypes.data + offset)
        assert libc.mprotect(address, ctypes.c_size_t(PAGE), protection) == 0


def imported(path: Path) -> tuple[Plan, Proof]:
    return import_msccl(Source(path.name, path.read_text(encoding="utf-8")))


def launched(plan: Plan, count: int, at_end: bool, host: CpuLauncher) -> list[NDArray[np.int32]]:
    sizes = [buffer_elements(plan.collective, r, count) for r in range(plan.n_ranks)]
    sends = [Fenced(n, at_end) for n, _ in sizes]
    receives = [Fenced(n, at_end) for _, n in sizes]
    for rank, fenced in enumerate(sends):
        fenced.array[:] = np.arange(len(fenced.array)) + 10_000 * (rank + 1)
    request = LaunchRequest(count, "int32", micro_batch=64, window=plan.max_window)
    host.launch([f.array for f in sends], [f.array for f in receives], request)
    return [f.array.copy() for f in receives]


GATHERS = [OWN / "custom_gather_n3.xml", CORPUS / "DGX1_Gather_root_0.xml"]  # at rank 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("path", GATHERS, ids=lambda p: p.stem)
def test_a_custom_gather_is_right_at_every_count(path: Path) -> None:
    if not path.is_file():
        pytest.skip("the corpus of foreign schedules is not beside this repository")
    plan, _ = imported(path)
    check_plan(plan)
    with built(plan, LaunchRequest(1, "int32")) as host:
        for count in COUNTS:
            for at_end in (True, False):
                root = launched(plan, count, at_end, host)[0].reshape(plan.n_ranks, count)
                want = np.arange(count) + 10_000 * np.arange(1, plan.n_ranks + 1)[:, None]
                assert np.array_equal(root, want), count


def test_a_parked_value_is_right_at_every_count() -> None:
    plan, _ = imported(OWN / "allreduce_parked_n2.xml")
    with built(plan, LaunchRequest(1, "int32")) as host:
        for count in COUNTS:
            for at_end in (True, False):
                for got in launched(plan, count, at_end, host):
                    assert np.array_equal(got, 2 * np.arange(count) + 30_000)
