"""hccc run --trace: a file beside the table, and where it is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hccc.launch import tracing
from tests.benchmarks.fake_cupy import fake_cupy
from tests.cli.commandline import Hccc
from tests.cli.test_run import RING, SHORT

ONE = ["-b", "64K", "-e", "64K", "--transport", "staged"]


def test_a_trace_besides_the_table(hccc: Hccc, tmp_path: Path) -> None:
    """A launch of each half of each row."""
    file = tmp_path / "trace.json"
    code, stdout, stderr = hccc("run", RING, *ONE, *SHORT, "--trace", file)
    assert (code, stderr) == (0, "") and "#wrong" in stdout
    whole = json.loads(file.read_text())
    launches = [e["args"] for e in whole["traceEvents"] if e.get("cat") == "launch"]
    assert [(x["bytes"], x["in place"], x["lost"]) for x in launches] == [
        (65536, False, 0),
        (65536, True, 0),
    ]
    first = next(e for e in whole["traceEvents"] if e.get("cat") == "primitive")
    assert {"opcode", "channel", "reads", "writes", "source", "bytes"} <= set(first["args"])


@pytest.mark.slow
def test_records_that_were_lost(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MOST_RECORDS", 64)
    code, _, stderr = hccc("run", RING, *ONE, *SHORT, "--trace", tmp_path / "trace.json")
    assert code == 0 and "W404" in stderr and "records were lost" in stderr


@pytest.mark.slow
def test_beside_what_is_predicted(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    cluster = ["--cluster", "mi300x", "--channels", "1", "--tune", "off"]
    assert hccc("run", RING, "-b", "64K", "-e", "64K", *cluster, *SHORT, "--trace", file)[0] == 0
    events = json.loads(file.read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"rank 3 (recorded)", "rank 3 (MI300X)"} <= names


@pytest.mark.slow
def test_on_a_gpu(hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of CuPy, and the trace read back: its stand-in runs kernels on the CPU."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(tmp_path, units=132))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nvcc" else which(name))
    file = tmp_path / "trace.json"
    code, _, stderr = hccc("run", RING, *ONE, *SHORT, "--device", "cuda", "--trace", file)
    assert (code, stderr) == (0, "")
    events = json.loads(file.read_text())["traceEvents"]
    assert [e["args"]["lost"] for e in events if e.get("cat") == "launch"] == [0, 0]
    blocks = {(e["pid"], e["tid"]) for e in events if e.get("cat") == "work"}
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert blocks == named


def test_where_it_is_refused(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    code, _, stderr = hccc("run", RING, "--device", "hip", "--trace", file)
    assert code == 1 and "E459" in stderr and "not with hip" in stderr
    code, _, stderr = hccc("run", RING, "--hosts", "a:4,b:4", "--trace", file)
    assert code == 1 and "E459" in stderr and "clocks differ" in stderr
    assert hccc("run", RING, "--trace", tmp_path / "no" / "trace.json")[0] == 1
    code, _, stderr = hccc("run", RING, "--trace", "-")
    assert code == 2 and "cannot go to stdout" in stderr
    code, _, stderr = hccc("run", RING, "--trace", file, "-J", file)
    assert code == 2 and "E415" in stderr
    assert not file.exists()


def test_a_directory_of_an_older_version(hccc: Hccc, tmp_path: Path) -> None:
    """Its headers know nothing of records."""
    made = tmp_path / "kernels"
    assert hccc(RING, "--transport", "staged", "-o", made)[0] == 0
    (made / "hccc" / "trace.h").unlink()
    code, _, stderr = hccc("run", made, "--trace", tmp_path / "trace.json")
    assert code == 1 and "E428" in stderr and "compile the program again" in stderr
