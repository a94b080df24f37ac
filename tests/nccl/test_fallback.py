"""Calls that hccc has no kernels for go to the library of HCCC_NCCL_FALLBACK, and are logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.runtime.nccl.library import NAMES, folder
from tests.nccl.ranks import RANKS, run

pytestmark = pytest.mark.slow
VERSION = 21900.0  # vendor.c's
RIGHT = [[3.0] * 4] * 2


def test_what_hccc_does_stays_hcccs(vendor: str) -> None:
    found, log = run("sums", HCCC_NCCL_FALLBACK=vendor, HCCC_DEBUG="INFO")
    assert found == {"found": RIGHT, "errors": []}
    assert "Allreduce of float32, sum: by hccc" in log
    assert f"the vendor's library: {vendor}, version 21900" in log


def test_the_rest_is_the_vendors(vendor: str) -> None:
    """The vendor's library calls its own functions by name, not those that were preloaded."""
    variables = {"HCCC_NCCL_FALLBACK": vendor, "HCCC_STANDARD": "0", "HCCC_DEBUG": "INFO"}
    found, log = run("ways", **variables)
    assert found["broadcast"][:3] == [VERSION, 1, 101]  # after the group of the communicators
    op, (first, second) = found["own"]
    assert op >= 5 and first == [VERSION, 2, 77, 0] and second == [VERSION, 2, 77, 1]
    assert found["gather"] == 5
    refused, missing = found["errors"]
    assert refused == [4, "the vendor's library: the vendor refuses: a text of the vendor"]
    why = "no library of kernels does it, and the vendor's library has no such function"
    assert missing == [5, f"Gather of float32: {why}"]
    assert "Broadcast of float32: by the vendor's library, as no library of kernels does it" in log
    assert "Allreduce of float32, premul_sum: by the vendor's library, as no library" in log


TABLE = "hccc times 1\ncollective Allreduce {} -1\nlibrary nccl\nrows 2\n16 9 4.5\n17 3 5\n"


def test_what_it_is_predicted_to_do_faster_is_the_vendors(vendor: str, tmp_path: Path) -> None:
    """By size: 16 bytes are the vendor's, 20 are hccc's again, 12 are in no row."""
    (tmp_path / "ranks.table").write_text(TABLE.format(4))
    (tmp_path / "times.table").write_text(TABLE.format(RANKS))
    variables = {"HCCC_NCCL_FALLBACK": vendor, "HCCC_LIBRARIES": str(tmp_path)}
    found, log = run("lengths", HCCC_DEBUG="INFO", **variables)
    assert found["errors"] == []
    assert found["found"] == [[3.0, 3.0], [VERSION, 1], [VERSION, 1], [3.0, 3.0]]
    assert run("lengths", **variables)[0] == found, "a call like the last goes there at once"
    why = "it is predicted to take 4.5 us there and 9.0 by hccc"
    assert log.count(f"Allreduce of float32, sum: by the vendor's library, as {why}") == 2 * RANKS
    assert log.count("Allreduce of float32, sum: by hccc") == 2 * RANKS
    assert "times of Allreduce by hccc and nccl, 4 ranks, left out" in log


def test_times_of_another_library_are_told(vendor: str, tmp_path: Path) -> None:
    """They are used all the same: NCCL's table says no word of it."""
    file = tmp_path / "times.table"
    variables = {"HCCC_NCCL_FALLBACK": vendor, "HCCC_LIBRARIES": str(file), "HCCC_DEBUG": "WARN"}
    for name, told in (("rccl", RANKS), ("nccl", 0)):
        file.write_text(TABLE.format(RANKS).replace("nccl", name))
        found, log = run("lengths", **variables)
        assert found["found"] == [[3.0, 3.0], [VERSION, 1], [VERSION, 1], [3.0, 3.0]]
        assert log.count("the times are of rccl, and the vendor's library is nccl") == told


def test_tables_that_are_none_are_refused(vendor: str, tmp_path: Path) -> None:
    file = tmp_path / "times.table"
    for wrong in ("times 2\n", TABLE.format(RANKS)[5:-4], TABLE.format(RANKS)[5:] + "1"):
        file.write_text("hccc " + wrong)
        found, _ = run("sums", HCCC_LIBRARIES=str(file), HCCC_NCCL_FALLBACK=vendor)
        (code, text), *_ = found["errors"]
        assert code == 5 and f"{file} is no table of times that this version reads" in text


def test_without_one_the_call_is_refused() -> None:
    found, _ = run("ways", HCCC_STANDARD="0")
    assert found["broadcast"] == [1] * 4 and found["own"][0] >= 5
    assert found["errors"] and all(code == 5 for code, _ in found["errors"])


def test_all_ranks_name_it_or_none(vendor: str) -> None:
    found, _ = run("named_by_one", OF_ONE=vendor)
    assert len(found) == RANKS
    for code, text in found:
        assert code == 5 and text == (
            "HCCC_NCCL_FALLBACK is set at some ranks only: ranks 0 and 1 differ"
        )


def test_what_cannot_serve_is_said(vendor: str) -> None:
    for path, why in [
        ("/nowhere/libnccl.so.2", "cannot open shared object file"),
        ("libm.so.6", "libm.so.6 is no NCCL: it has no ncclGetVersion"),
        (str(folder() / NAMES[0]), "is this library: name the vendor's own"),
    ]:
        found, _ = run("sums", HCCC_NCCL_FALLBACK=path)
        (code, text), *_ = found["errors"]
        assert found["found"] is None and code == 2, found
        assert text.startswith("$HCCC_NCCL_FALLBACK: ") and why in text
