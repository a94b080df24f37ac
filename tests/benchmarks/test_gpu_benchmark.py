"""The whole script: on CPU threads, through a CuPy that has no GPU, and where there is nothing."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import (
    carried,
    cases,
    constants,
    data,
    estimate,
    interpreter,
    measured_machine,
    prepare,
    timing,
)
from benchmarks.gpu import run as script
from hccc.runtime.machines.arrays import Arrays
from hccc.runtime.machines.kernel import MachineLaunch
from hccc.runtime.machines.ptx.machine import PtxKernel
from hccc.runtime.request import LaunchRequest
from tests.benchmarks.fake_cupy import fake_cupy
from tests.runtime.handwritten import PROGRAMS

CONSTANT = constants.ConstantTime("a load", timing.Sample(0.25, 0.2, 0.3, 6))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinks the measurements of --quick, on both devices."""
    settings = cases.GpuSettings(
        (4096, 65536), (4096, 16384), 4, 2, 2, (5000,), (8, 32768), body=40960
    )
    monkeypatch.setattr(cases, "GPU_QUICK", settings)
    monkeypatch.setattr(cases, "CPU_QUICK", settings)


def without_nvcc(which: Callable[[str], str | None], name: str) -> str | None:
    """Finds programs as shutil.which does, without nvcc: kernels are built by NVRTC."""
    return None if name == "nvcc" else which(name)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provides a CuPy with a small GPU, and no nvcc."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(tmp_path, units=17))
    monkeypatch.setattr(shutil, "which", partial(without_nvcc, shutil.which))
    monkeypatch.setattr(measured_machine, "STALL", 1 << 16)
    monkeypatch.setattr(carried, "MADE", tmp_path / "made")
    monkeypatch.setattr(constants, "command", lambda *_: ["true"])
    monkeypatch.setattr(constants.ConstantTimes, "__init__", lambda *_: None)
    monkeypatch.setattr(constants.ConstantTimes, "all", lambda _: iter([CONSTANT]))
    yield
    measured_machine._pads.cache_clear()


def run(out: Path, *words: str) -> tuple[dict[str, Any], str]:
    """Returns the JSON and the page written by a run that succeeds."""
    assert script.main(["--quick", "--out", str(out), *words]) == 0
    (page,), (data,) = out.glob("*.md"), out.glob("*.json")
    return json.loads(data.read_text()), page.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_on_the_cpu(tmp_path: Path) -> None:
    got, page = run(tmp_path / "r", "--device", "cpu", "--only", "ring_allgather")
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
    assert not got["points"] and got["notes"] == [
        "ranks of a communicator: no nvcc, so nothing was built for them",
        "constants: they are those of NVIDIA's GPUs",
        "NCCL was not found",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_one_example_is_checked_in_several_types(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--only", "direct_allreduce"]
    got, _ = run(tmp_path / "r", *words)
    of_one = [c["name"] for c in got["checks"] if c["name"].startswith("direct_allreduce direct")]
    types = [name.partition(", ")[2] for name in of_one]
    assert types == ["", *cases.CHECKED[1]] and all(c["wrong"] == 0 for c in got["checks"])


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_short_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(cases.CPU_QUICK, short=(8, 4096), short_channels=(1,))
    monkeypatch.setattr(cases, "CPU_QUICK", few)
    words = ["--device", "cpu", "--only", "short"]
    got, page = run(tmp_path / "r", *words)
    assert [(p["dtype"], p["size"]) for p in got["short"]] == [
        (dtype, size) for dtype in cases.DTYPES for size in (8, 4096)
    ]
    arms = ["counters, 1 channel", "packets, one shot, 1 channel", "packets, two shots, 1 channel"]
    assert all(p["right"] and list(p["times"]) == arms for p in got["short"])
    assert "## Short calls, bfloat16" in page and f"| a rank | {' | '.join(arms)} | right |" in page


@pytest.mark.slow
@pytest.mark.usefixtures("small", "gpu")
def test_with_a_gpu(tmp_path: Path) -> None:
    got, page = run(tmp_path / "r", "--only", "ring_allreduce")
    assert got["facts"]["device"] == "Fake GPU, sm_90, 17 units"
    assert [c["wrong"] for c in got["checks"]] == [0, 0]
    # 34 blocks at once: 16 a channel leave room for two channels, 24 for one.
    channels = {c["fuse"]: (c["thread_blocks"], c["channels"]) for c in got["cells"]}
    assert channels == {"none": (16, 2), "auto": (24, 1)}
    assert got["cells"] and all(c["same"] for c in got["cells"])
    assert "interpreted: 64 registers" in page
    assert "## Constants" in page and "| a load | 0.250 | 0.200 | 0.300 |" in page
    # One node: nothing is mixed. Eight bytes are no more than one float or four for 8 ranks.
    swept = {(p["transport"], p["dtype"], p["size"]) for p in got["points"]}
    assert swept == set(product(("direct", "staged"), ("float32", "bfloat16"), (8, 32768)))
    assert all(p["same"] for p in got["points"])
    assert {tuple(p["times"]) for p in got["points"]} == {
        ("generated", "interpreted", "system scope")
    }
    assert "## ring_allreduce, bfloat16, all sizes" in page and "| 8 B | direct |" in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_launcher_takes_what_was_built_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    kernel = measured_machine.GpuMachine().kernel(
        plan, tmp_path / "k", measured_machine.KernelKind.INTERPRETED
    )
    request = LaunchRequest(0, "float32")
    kernel.build(request)
    (built,) = (tmp_path / "k" / "build").iterdir()
    kernel._kernel(kernel.unit_of(request), request.variant(plan.collective))
    assert loaded == [built] == list((tmp_path / "k" / "build").iterdir())
    assert built.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.usefixtures("small", "gpu")
def test_different_results_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = interpreter._mode
    # An interpreter whose last reduction copies instead.
    wrong = lambda plan, row, k: right(plan, row, 0 if plan.final[row] else k)  # noqa: E731
    monkeypatch.setattr(interpreter, "_mode", wrong)
    words = ["--quick", "--only", "ring_allreduce", "--out", str(tmp_path / "r")]
    assert script.main(words) == 1
    (page,) = (tmp_path / "r").glob("*.md")
    assert " NO |" in page.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_without_time(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--only", "ring_allgather", "--budget", "0"]
    got, page = run(tmp_path / "r", *words)
    assert not got["checks"] and not got["cells"] and got["copies"]
    assert "no time was left for checking ring_allgather direct" in page


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert script.main([]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("benchmarks/gpu: CuPy cannot be imported") and not said.out


@pytest.mark.slow
def test_mixed_plans_run_without_a_proxy(tmp_path: Path) -> None:
    found = cases.swept(264, 2, "hm_allreduce")
    assert [case.transport for case in found] == list(cases.TRANSPORTS)
    host, case = measured_machine.HostMachine(), found[-1]
    kernels = [host.kernel(case.plan, tmp_path / kind.name, kind) for kind in host.kinds]
    inputs, *outputs = data.memory(host, case.plan, 5000, "bfloat16", 2)
    for kernel, out in zip(kernels, outputs, strict=True):
        kernel.burst(inputs, out, LaunchRequest(5000, "bfloat16", timeout=5), 2)
    assert data.same(host, "bfloat16", *outputs)
    outputs[1][3][77] ^= 1
    assert not data.same(host, "bfloat16", *outputs)


@pytest.mark.slow
@pytest.mark.usefixtures("gpu")
def test_through_the_c_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases.swept(264, 2, "ring_allreduce")[0]
    machine = measured_machine.GpuMachine()
    assert measured_machine.KernelKind.LAUNCHER not in machine.kinds  # there is no nvcc to build it
    kernel = machine.kernel(case.plan, tmp_path / "k", measured_machine.KernelKind.LAUNCHER)
    assert isinstance(kernel, measured_machine.LaunchedKernel)
    assert measured_machine.library_command(
        kernel, LaunchRequest(0, "float32").variant(case.plan.collective)
    )
    header = tmp_path / "k" / "hccc" / "gpu_launch.h"
    header.write_text((PROGRAMS / "fake_cuda.h").read_text() + header.read_text())
    flags = ["-x", "c++", "-std=c++17", "-O0", "-shared", "-fPIC", "-pthread", "-D__device__="]

    def command(kernel: Any, variant: Any) -> list[str]:
        return ["g++", *flags, *kernel.options(variant), str(kernel.source)]

    monkeypatch.setattr(measured_machine, "library_command", command)
    request = LaunchRequest(5000, "float32", timeout=5)
    kernel.build(request)
    other = measured_machine.HostMachine().kernel(
        case.plan, tmp_path / "h", measured_machine.KernelKind.GENERATED
    )
    inputs, *outputs = data.memory(machine, case.plan, 5000, "float32", 2)
    assert len(kernel.burst(inputs, outputs[0], request, 3)) == 3 and kernel.host_us > 0
    other.burst(inputs, outputs[1], request, 1)
    assert data.same(machine, "float32", *outputs)


@pytest.mark.usefixtures("gpu")
def test_nccl_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured_machine.GpuMachine().library() is None
    calls: list[tuple[int, ...]] = []
    rank = SimpleNamespace(allReduce=lambda *call: calls.append(call[2:]))
    nccl = ModuleType("cupy.cuda.nccl")
    for name, value in {
        "available": 1,
        "NCCL_FLOAT32": 7,
        "NCCL_SUM": 0,
        "get_version": lambda: 22703,
        "get_unique_id": lambda: (),
        "NcclCommunicator": lambda *_: rank,
    }.items():
        setattr(nccl, name, value)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)
    library = measured_machine.GpuMachine().library()
    assert library is not None
    assert library.name == "NCCL 22703, AllReduce of one rank"
    assert len(library.burst(4096, "bfloat16", 3)) == 3
    assert calls == [(2048, 9, 0, 0)] * 3


@pytest.mark.slow
def test_a_run_fits_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(carried, "MADE", tmp_path)
    assert script.main(["--dry-run"]) == 1  # with 186 kernels to build
    said = capsys.readouterr().out
    assert "nothing is carried along" in said and "s  building " in said
    manifest = carried.Manifest(carried.state(), estimate.ARCH, estimate.UNITS, False, "")
    carried.save(cases.all_of(2 * estimate.UNITS, cases.GPU, ""), manifest, tmp_path)
    assert script.main(["--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "in all, of 420" in said and "plans at 10 sizes" in said and "building" not in said
    assert script.main(["--dry-run", "--budget", "60"]) == 1


# Builds a kernel's text as nvcc would, for the CuPy that has no GPU: source, options, -o FILE.
COMPILER = """
import subprocess, sys
from pathlib import Path
from tests.benchmarks.fake_cupy import ENTRY
source, *options, _, made = sys.argv[1:]
text = Path(source).with_suffix(".fake.cpp")
text.write_text(Path(source).read_text() + ENTRY)
flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-pthread", "-D__device__="]
subprocess.run(["g++", *options, *flags, text, "-o", made], check=True)
text.unlink()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("small", "gpu")
def test_what_is_carried_along_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiler(device: Any, source: Path, options: Sequence[str]) -> list[str]:
        assert (device.arch, device.cupy) == ("sm_90", None)
        return [sys.executable, "-c", COMPILER, str(source), *options]

    given = SimpleNamespace(arch="sm_90", units=17, quick=True, only="ring_allgather", jobs=2)
    with monkeypatch.context() as here:
        here.setattr(measured_machine, "compile_command", compiler)
        size = prepare.build(given, carried.MADE)  # type: ignore[arg-type]
    assert 0 < size < carried.MOST and not list(carried.MADE.rglob("*.h"))

    def compiled(*_: Any, **options: Any) -> Any:
        raise AssertionError("a plan or a kernel was compiled")

    built = sys.modules["cupy"].RawModule
    only_built = lambda path="", **_: built(path=path) if path else compiled()  # noqa: E731
    monkeypatch.setattr(sys.modules["cupy"], "RawModule", only_built)
    monkeypatch.setattr(cases, "compile_text", compiled)
    monkeypatch.setattr("hccc.runtime.cpu.build_library", compiled)
    got, _ = run(tmp_path / "r", "--only", "ring_allgather")
    assert [c["wrong"] for c in got["checks"]] == [0, 0]
    assert got["cells"] and all(c["same"] for c in got["cells"])
    assert not any("carried" in note for note in got["notes"])


def test_what_is_carried_is_of_this_checkout_and_gpu(tmp_path: Path) -> None:
    wanted = carried.Manifest("1", "sm_90", 132, quick=False, only="")
    assert "nothing is carried" in str(carried.load(wanted, tmp_path))
    made = cases.GpuCases((("a", None),), (), (), (), (), ("large",))
    carried.save(made, wanted, tmp_path)
    got = carried.load(wanted, tmp_path)
    assert isinstance(got, cases.GpuCases) and (got.checks, got.large) == (made.checks, made.large)
    changed = carried.Manifest("2", "sm_90", 132, quick=False, only="")
    assert "has changed since" in str(carried.load(changed, tmp_path))
    other = carried.Manifest("1", "sm_100", 148, quick=True, only="ring")
    said = (
        "sm_90 with 132 units, this run is of sm_100 with 148 units, --quick, programs with 'ring'"
    )
    assert said in str(carried.load(other, tmp_path))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.slow
def test_constants_do_what_they_time(tmp_path: Path) -> None:
    """nvcc's text of each kind, run by the machine for PTX: as often as said, without a fault."""
    text = tmp_path / "constants.ptx"
    command = constants.command("sm_90", text)
    subprocess.run(["-ptx" if x == "-cubin" else x for x in command], check=True)
    kernel, arrays = PtxKernel(text.read_text(), constants.KERNEL), Arrays()
    for number, kind in enumerate(constants.KINDS):
        few = replace(kind, times=5)
        words = arrays.asarray(constants.cycle())
        host = arrays.asarray(constants.cycle()[: constants.REACH])
        room, out = arrays.zeros(constants.ROOM, np.uint8), arrays.zeros(4, np.uint64)
        pointers = [a.data.ptr for a in (words, host, room, out)]
        params = struct.pack("4Q2i", *pointers, number, few.times)
        launch = MachineLaunch(params, few.blocks, 1, few.threads, 0)
        assert kernel.run([launch], arrays.regions(), seed=1) is None, kind.name
        assert constants.one(few, out) > 0, kind.name
        flags = words[constants.REACH :: constants.FAR].tolist()
        assert flags == ([5, 5] if kind.name == "HOP" else [0, 0]), kind.name
        stored = {"FENCE_4K": 4 << 10, "FENCE_64K": 64 << 10}.get(kind.name, 0)
        assert np.count_nonzero(room) * 4 == stored, kind.name
        chased = kind.name in ("LOAD", "ACQUIRE", "HOST_LOAD")
        assert int(out[3]) == (constants.reached(5) if chased else 0), kind.name
        if chased:
            with pytest.raises(ValueError, match="it ended at"):
                constants.one(replace(few, times=6), out)


@pytest.mark.quick(0)
def test_bodies_are_a_primitive_a_rank() -> None:
    found = list(cases.bodies(132, "body"))
    names = list(dict.fromkeys(case.name for case in found))
    assert names == ["body 1 to 7", "body 2 to 2", "body 4 to 4", "body 8 to 8", "body 9 to 9"]
    for case in found:
        k, d = int(case.name.split()[1]), int(case.name.split()[3])
        counts = set(
            zip(case.plan.src.counts().tolist(), case.plan.dst.counts().tolist(), strict=True)
        )
        assert counts == (
            {(1, 7), (1, 1)} if k == 1 else {(k, d)}
        )  # out of place the own block, too
        assert cases.grid_blocks(case.plan) <= 132


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_bodies_on_the_cpu(tmp_path: Path) -> None:
    got, page = run(tmp_path / "r", "--device", "cpu", "--only", "body 2")
    assert {(b["name"], b["dtype"]) for b in got["bodies"]} == {
        ("body 2 to 2", "float32"),
        ("body 2 to 2", "bfloat16"),
    }
    blocks = [b["blocks"] for b in got["bodies"][::2]]
    assert blocks == sorted(set(blocks)) and len(blocks) > 2
    # Two ranks read two halves of a buffer and write two: four buffers.
    assert all(b["issued"] == 4 * 40960 for b in got["bodies"])
    assert "## Bodies" in page and "40 KiB a rank" in page


def test_sizes_are_from_8_bytes_to_1_gib() -> None:
    assert (cases.SIZES[0], cases.SIZES[-1]) == (8, 1 << 30)


@pytest.mark.slow
@pytest.mark.usefixtures("small", "gpu")
def test_results_go_where_they_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "collected"))
    assert script.main(["--quick", "--only", "ring_allreduce", "--budget", "0"]) == 0
    assert {path.suffix for path in (tmp_path / "collected").iterdir()} == {".md", ".json"}


def test_what_is_carried_is_pure_python(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    prepare.prepare(tmp_path, asked.append)
    assert asked[0][-len(prepare.PURE) :] == list(prepare.PURE) and "--no-deps" in asked[0]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.so").touch()
    with pytest.raises(RuntimeError, match=r"a/b\.so"):
        prepare.prepare(tmp_path, asked.append)


def test_no_such_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main(["--only", "nonesuch"])
    assert "no program has that in its name" in capsys.readouterr().err


def test_arms_alternate() -> None:
    turns: list[str] = []

    def arm(name: str) -> Any:
        def launch(n: int) -> list[float]:
            turns.append(name)
            return [{"a": 1e-6, "b": 2e-6}[name]] * n

        return launch

    a, b = timing.race([arm("a"), arm("b")], launches=8, burst=2)
    assert (a.median, b.median, a.launches, b.launches) == (1, 2, 8, 8)
    assert "".join(turns) == "ab" + "abba" * 2


def test_the_bytes_of_the_reference() -> None:
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
