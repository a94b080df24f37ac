"""Which plan of a catalogue a call takes: the C header and picks.py agree on all of it."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from ctypes import byref
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hccc.ir.catalogue import Catalogue, Range
from hccc.ir.collective import OpType
from hccc.ir.micro_batch import GRAIN
from hccc.runtime.abi import CallRecord, CommRecord
from hccc.runtime.layout import DTYPES
from hccc.runtime.picks import picks_of
from hccc.runtime.request import LaunchRequest
from tests.emit import catalogues, plans
from tests.emit.catalogues import BORDER, FIRST, made, only
from tests.runtime.handwritten import PROGRAMS

GATHER = plans.ring_allgather(5)
# Blocks of a fifth of a message, a border that none begins at, and calls out of place only.
APART = made(
    "both",
    (
        only(plans.compiled(GATHER), False),
        plans.compiled(plans.ring_allgather(5, channels=2)),
    ),
    [Range(False, 0, 0, 0, GRAIN), Range(False, 1003, 1, 3, GRAIN)],
)
CASES = {"both": catalogues.both(), "apart": APART}
BAD_ARGUMENT, BAD_ABI = 2, 7


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Compiles the C header of each case, with strict warnings."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    found = {}
    for name, catalogue in CASES.items():
        place = catalogues.written(catalogue, tmp_path_factory.mktemp(name) / "k")
        library = place / "picks.so"
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
        command = ["gcc", "-std=c99", *warnings, "-shared", "-fPIC", f"-I{place}"]
        done = subprocess.run(
            [*command, str(PROGRAMS / "catalogue.c"), "-o", str(library)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found[name] = ctypes.CDLL(str(library))
        found[name].scratch_bytes.restype = found[name].flag_bytes.restype = ctypes.c_longlong
    return found


def ask(library: Any, catalogue: Catalogue, size: int, **fields: int) -> tuple[int, list[int]]:
    """Returns the status, and (plan, flags, window, micro-batch, whether the rest is unchanged)."""
    out = (ctypes.c_longlong * 5)()
    call, comm = CallRecord.of(**fields), CommRecord.of(catalogue.n_ranks, 8, 16, 256)
    return library.picked(byref(comm), byref(call), size, out), list(out)


counts = st.integers(0, 1 << 40) | st.sampled_from([FIRST, BORDER, 4 * BORDER]).flatmap(
    lambda size: st.integers(-3, 3).map(lambda off: max(0, size // 4 + off))
)
choices = st.sampled_from([0, 0, 5]), st.sampled_from([0, 0, 4096, 1 << 20])


@given(st.sampled_from(list(CASES)), counts, st.sampled_from(list(DTYPES)), st.booleans(), *choices)
@example("apart", 50, "float32", False, 0, 0)  # 1000 bytes
@example("apart", 51, "float32", False, 0, 0)  # 1020
def test_c_and_python_agree(
    libraries: dict[str, Any],
    case: str,
    count: int,
    dtype: str,
    in_place: bool,
    window: int,
    micro_batch: int,
) -> None:
    catalogue, library, picks = CASES[case], libraries[case], picks_of(CASES[case])
    request = LaunchRequest(count, dtype, "sum", in_place, micro_batch, window)
    size = request.itemsize
    given = {"count": count, "window": window, "micro_batch_bytes": micro_batch}
    call = CallRecord.of(**given, in_place=in_place * 3)
    status, out = ask(library, catalogue, size, **given, in_place=in_place * 3)
    if in_place not in catalogue.modes:
        assert status == BAD_ARGUMENT and library.plan_of(byref(call), size) == 0
        assert library.scratch_bytes(byref(call), size) == -1
        return
    found = picks.range_of(request)
    assert status == 0 and library.plan_of(byref(call), size) == found.plan + 1
    shape = picks.shape_of(request)
    assert out[:3] == [found.plan, 256 + picks.flags_at(found.plan), window or found.window]
    assert out[4]
    assert shape.sizes(count, size, out[3]) == shape.sizes(count, size, micro_batch)
    need = shape.scratch_bytes(count, size, micro_batch)
    assert library.scratch_bytes(byref(call), size) == need
    assert library.flag_bytes() == picks.flag_bytes


def test_flags_follow_each_other_and_end_on_lines(libraries: dict[str, Any]) -> None:
    for name, catalogue in CASES.items():
        picks = picks_of(catalogue)
        at = [picks.flags_at(k) for k in range(len(catalogue.plans) + 1)]
        assert at[0] == 0 and at[-1] == picks.flag_bytes == libraries[name].flag_bytes()
        assert all(x % 128 == 0 for x in at)
        assert [b - a for a, b in itertools.pairwise(at)] == [
            shape.flag_bytes for shape in picks.shapes
        ]


def test_what_cannot_be_asked(libraries: dict[str, Any]) -> None:
    library, catalogue = libraries["both"], CASES["both"]
    out = (ctypes.c_longlong * 5)()
    good, comm = CallRecord.of(count=1), CommRecord.of(4, 8, 16)
    assert library.picked(byref(comm), byref(good), 4, out) == 0
    assert library.picked(None, byref(good), 4, out) == BAD_ARGUMENT
    assert library.picked(byref(comm), None, 4, out) == BAD_ARGUMENT
    assert ask(library, catalogue, 4, count=-1)[0] == BAD_ARGUMENT
    for field in ("size", "abi", "rank_size"):
        other = CommRecord.of(4, 8, 16)
        setattr(other, field, getattr(other, field) + 8)
        assert library.picked(byref(other), byref(good), 4, out) == BAD_ABI
    other = CommRecord.of(4, 8, 16, -128)
    assert library.picked(byref(other), byref(good), 4, out) == BAD_ARGUMENT


def test_sizes_are_those_of_messages() -> None:
    """Nccl-tests': the larger buffer of the rank that has most."""
    picks = picks_of(APART)
    assert APART.collective.op is OpType.ALLGATHER
    for count, plan in ((50, 0), (51, 1)):
        assert picks.range_of(LaunchRequest(count, "float32")).plan == plan
