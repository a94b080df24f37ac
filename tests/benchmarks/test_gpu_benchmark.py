"""The whole script: on CPU threads, through a CuPy that has no GPU, and where there is nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hccc.runtime.request import Request
from tests.benchmarks.fake_cupy import fake_cupy


@pytest.fixture
def small(cases: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What --quick measures, on both devices."""
    settings = cases.Settings((4096, 65536), (4096, 16384), 4, 2, 2, (5000,))
    monkeypatch.setattr(cases, "GPU_QUICK", settings)
    monkeypatch.setattr(cases, "CPU_QUICK", settings)


def without_nvcc(which: Callable[[str], str | None], name: str) -> str | None:
    """shutil.which on a machine without nvcc: kernels are built by NVRTC."""
    return None if name == "nvcc" else which(name)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: ModuleType) -> Iterator[None]:
    """A CuPy with a small GPU, and no nvcc."""
    machines = sys.modules["machines"]
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(tmp_path, units=17))
    monkeypatch.setattr(shutil, "which", partial(without_nvcc, shutil.which))
    monkeypatch.setattr(machines, "STALL", 1 << 16)
    yield
    machines._pads.cache_clear()


def run(script: ModuleType, out: Path, *words: str) -> tuple[dict[str, Any], str]:
    """What a run that succeeds writes: JSON and page."""
    assert script.main(["--quick", "--out", str(out), *words]) == 0
    (page,), (data,) = out.glob("*.md"), out.glob("*.json")
    return json.loads(data.read_text()), page.read_text()


@pytest.mark.usefixtures("small")
def test_on_the_cpu(script: ModuleType, tmp_path: Path) -> None:
    got, page = run(script, tmp_path / "r", "--device", "cpu", "--only", "ring_allgather")
    assert [c["wrong"] for c in got["checks"]] == [0, 0]
    # Both fusion levels are one plan; at each size two micro-batches (one in small parts), two W.
    assert [c["fuse"] for c in got["cells"]] == ["none/auto"] * len(got["cells"])
    assert {(c["size"], c["window"]) for c in got["cells"]} == {
        (size, w) for size in (4096, 65536) for w in (0, 1)
    }
    assert all(c["same"] and c["generated"]["launches"] >= 4 for c in got["cells"])
    # A put reads and writes each byte of 8 blocks at 7 ranks; the own block is copied, too.
    cell = got["cells"][-1]
    assert cell["issued"] == 16 * cell["size"] and cell["floor"] == 9 * cell["size"]
    assert "| ring_allgather | none/auto |" in page and " NO |" not in page
    assert "64 KiB a rank" in page and "2 programs checked" in page


@pytest.mark.usefixtures("small", "gpu")
def test_with_a_gpu(script: ModuleType, tmp_path: Path) -> None:
    got, page = run(script, tmp_path / "r", "--only", "ring_allreduce")
    assert got["facts"]["device"] == "Fake GPU, sm_90, 17 units"
    assert [c["wrong"] for c in got["checks"]] == [0, 0]
    # 34 blocks at once: 16 a channel leave room for two channels, 24 for one.
    channels = {c["fuse"]: (c["thread_blocks"], c["channels"]) for c in got["cells"]}
    assert channels == {"none": (16, 2), "auto": (24, 1)}
    assert got["cells"] and all(c["same"] for c in got["cells"])
    assert "interpreted: 64 registers" in page


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_launcher_takes_what_was_built_ahead(
    cases: ModuleType, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = fake_cupy(tmp_path, units=132)
    loaded: list[Path] = []

    def load(path: str) -> Any:
        loaded.append(Path(path))
        return SimpleNamespace(
            get_function=lambda _: SimpleNamespace(kernel=SimpleNamespace(ptr=1))
        )

    monkeypatch.setattr(cupy, "RawModule", load)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    plan = cases.timed(264, 32, "ring_allgather")[0][0].plan
    kernel = sys.modules["machines"].Gpu().kernel(plan, tmp_path / "k", True)
    request = Request(0, "float32")
    kernel.build(request)
    (built,) = (tmp_path / "k" / "build").iterdir()
    kernel._kernel(request.variant(plan.collective))
    assert loaded == [built] == list((tmp_path / "k" / "build").iterdir())
    assert built.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.usefixtures("small", "gpu")
def test_different_results_are_told(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter = sys.modules["interpreter"]
    right = interpreter._mode
    # An interpreter whose last reduction copies instead.
    wrong = lambda plan, row, k: right(plan, row, 0 if plan.final[row] else k)  # noqa: E731
    monkeypatch.setattr(interpreter, "_mode", wrong)
    words = ["--quick", "--only", "ring_allreduce", "--out", str(tmp_path / "r")]
    assert script.main(words) == 1
    (page,) = (tmp_path / "r").glob("*.md")
    assert " NO |" in page.read_text()


@pytest.mark.usefixtures("small")
def test_without_time(script: ModuleType, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--only", "ring_allgather", "--budget", "0"]
    got, page = run(script, tmp_path / "r", *words)
    assert not got["checks"] and not got["cells"] and got["copies"]
    assert "no time was left for checking ring_allgather direct" in page


def test_without_a_gpu(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert script.main([]) == 0
    assert capsys.readouterr().out.startswith("benchmarks/gpu skipped: CuPy cannot be imported")


def test_no_such_program(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--only", "nonesuch"])
    assert "no program has that in its name" in capsys.readouterr().err


def test_arms_alternate(script: ModuleType) -> None:
    turns: list[str] = []

    def arm(name: str) -> Any:
        def launch(n: int) -> list[float]:
            turns.append(name)
            return [{"a": 1e-6, "b": 2e-6}[name]] * n

        return launch

    a, b = sys.modules["timing"].race([arm("a"), arm("b")], launches=8, burst=2)
    assert (a.median, b.median, a.launches, b.launches) == (1, 2, 8, 8)
    assert "".join(turns) == "ab" + "abba" * 2


def test_the_bytes_of_the_reference(cases: ModuleType) -> None:
    """kernel-protocol §2, 8 ranks: per-task rings and meshes issue 35 N, fully fused ones 16 N."""
    plans, large = cases.timed(64, 1, "allreduce")
    assert large == ["hm_allreduce 1x8, fuse none"]  # 14 blocks at each of 8 ranks
    for case in plans:
        issued = cases.issued_bytes(case.plan, 1 << 20, 4) / (4 << 20)
        assert cases.floor_bytes(case.plan, 1 << 20, 4) == 16 * (4 << 20)
        if case.fuse == "none":
            assert issued == 35, case.name
        if case.slug == "hm_allreduce_1x8-auto":
            assert issued == 16
