"""hccc profile: this machine as a cluster, from real kernels; whole files or none."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.ir.device import Cached
from hccc.ir.topology import check, same
from hccc.lang.cluster import load as cluster
from hccc.lang.cluster.load import load
from hccc.lang.cluster.printer import lines
from hccc.profile import cluster_file as profile_file
from hccc.profile.calibrate import UnitCosts
from hccc.runtime.cpu import SMALL_LAUNCH
from tests.cli.commandline import ROOT, Hccc

QUICK = ["--ranks", "4", "--time", "0.01"]
MADE = profile_file.Profile(
    "cpu",
    "cpu",
    "A (R) CPU @ 3 GHz",
    "a compiler",
    8,
    2,
    UnitCosts(
        4.0,
        90.0,
        0.02,
        0.03,
        7.0,
        150.0,
        0.3,
        (Cached(1 << 20, 40.0, 70.0), Cached(1 << 30, 7.0, 13.0)),
    ),
    70.0,
    25,
    9,
    999,
    0.1,
    0.01,
    0.2,
    1.0,
    "today",
)


@pytest.mark.slow
def test_this_machine(hccc: Hccc, tmp_path: Path) -> None:
    site = tmp_path / "site.cluster"
    code, stdout, stderr = hccc("profile", "-o", site, "--device", "cpu", *QUICK, "--json")
    assert (code, stderr) == (0, "")
    facts = json.loads(stdout)
    assert os.listdir(tmp_path) == ["site.cluster"] and facts["files"] == [str(site)]
    assert facts["profiles"][0]["cluster"] == site.read_text()
    t = load(site)
    assert check(t) == []
    assert (len(t), t.cores.tolist()) == (4, [len(os.sched_getaffinity(0))])
    assert 0.1 < t.devices[0].block < 1000 and t.devices[0].vendor == "cpu"
    assert 0 <= t.meshes.alpha[0] < 1000
    told = site.read_text().split("define")[0]
    assert all(line.startswith("# ") for line in told.splitlines())
    for word in ("launches", "UTC", "cores", "α", "block", "reduce", "NIC"):
        assert word in told
    ring = ROOT / "examples" / "sendrecv.rccl"
    assert hccc("check", ring, "--cluster", site)[0] == 1  # it has 8 ranks


@pytest.mark.slow
def test_a_gpu_is_measured_by_the_same_code(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "benchmarks")
    fake = importlib.import_module("fake_cupy").fake_cupy(tmp_path, units=9)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no nvcc
    out = tmp_path / "out"
    out.mkdir()
    code, told, stderr = hccc("profile", "-o", out / "site.cluster", "--device", "cuda", *QUICK)
    assert (code, stderr) == (0, "") and told.startswith("Fake GPU → ")
    t = load(out / "site.cluster")
    assert (len(t), t.cores.tolist(), t.devices[0].name) == (4, [0], "Fake GPU")
    assert len(t.shared) == 4 and t.devices[0].vendor == "nvidia"
    assert hccc("profile", "--device", "hip", *QUICK)[2].startswith("error[E425]")
    several = hccc("profile", *QUICK)
    assert several[2].startswith("error[E415]") and "cpu, cuda" in several[2]


def test_what_cannot_be_is_said_at_once(hccc: Hccc, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cluster"
    mine.write_text("define node1 = 1\n")
    for options, error, exit_code in (
        (["-o", mine], "error[E430]", 1),
        (["-o", tmp_path / "no" / "x"], "error[E431]", 1),
        (["--device", "cuda"], "error[E456]: CuPy", 1),
        (["--ranks", "3"], "error", 2),
        (["--time", "0"], "error", 2),
    ):
        code, stdout, stderr = hccc("profile", *options)
        assert (code, stdout) == (exit_code, "") and stderr.startswith(error), stderr
    assert mine.read_text() == "define node1 = 1\n"


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space"):
        profile_file.write({tmp_path / "a": "1", tmp_path / "b": "2"})
    assert os.listdir(tmp_path) == []


def test_text_and_cluster_agree() -> None:
    t = MADE.topology
    assert t.devices[0].name == "A CPU 3 GHz"
    assert (t.devices[0].block, t.devices[0].reduce, t.cores.tolist()) == (7, 150, [2])
    assert t.meshes[0] == (70, 1, 0.03)
    assert t.launch.tolist() == [[4, 0.02, 90, SMALL_LAUNCH]]
    d = t.devices[0]
    assert (d.read, d.step, d.cache) == (0.3, 0.03, MADE.costs.cache)
    assert same(t, cluster.parse(Source("again.cluster", "\n".join(lines(t)))))


def test_a_gpu_has_ports_and_no_caches() -> None:
    t = replace(MADE, cores=0, total=80.0, costs=replace(MADE.costs, cache=())).topology
    d = t.devices[0]
    assert (d.read, d.step, d.cache, t.cores.tolist()) == (0.5, 0, (), [0])
    assert t.shared.bandwidth.tolist() == [10] * 8 and t.launch.tolist() == [[4, 0.02, 90, 0]]


def test_small_launches_are_those_of_the_runtime() -> None:
    header = (ROOT / "runtime" / "include" / "hccc" / "cpu_runtime.h").read_text()
    said = re.search(r"hccc_small_launch = (\d+) << (\d+);", header)
    assert said and int(said[1]) << int(said[2]) == SMALL_LAUNCH


@pytest.mark.parametrize("name", ["", "@#!", "x" * 200, 'a"} define', "Größe 5", "\n"])
def test_any_name_of_a_machine(name: str) -> None:
    made = replace(MADE, name=name)
    assert made.topology.devices[0].name
