"""The interpreter runs a plan to the same bits as the generated kernel, and compiles for GPUs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import cases, interpreter
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import CPU, CUDA, HIP
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import shape_of
from hccc.runtime.measure import patterns, perf
from hccc.runtime.measure.patterns import Array, Pattern
from hccc.runtime.request import LaunchRequest
from tests.marks import slow

OPTIONS = {
    "ring": ("ring_allreduce", Options(fuse="none", channels=2)),
    "mesh": (
        "hm_allreduce 2x4",
        Options(fuse="full", channels=2, transport=Transport.DIRECT),
    ),
    "staged": ("ring_allreduce", Options(transport=Transport.STAGED, channels=2)),
    "slots": ("hm_allreduce 2x4", Options(network_lowering="slots", channels=2)),
    "put": ("hm_allreduce 2x4", Options(network_lowering="put", channels=2)),
}
NVCC, CLANG = shutil.which("nvcc"), shutil.which("clang-19")
SPILLS_OUT_OF_LINE = 128  # bytes, as for generated kernels
SPILLS_MIXED = 256  # waits also find their way over the network

named = pytest.mark.parametrize(
    "name", [name if name in ("ring", "slots") else slow(name) for name in OPTIONS]
)


@pytest.fixture
def plan(name: str) -> Plan:
    """Compiles the program and options of a name in OPTIONS."""
    program, options = OPTIONS[name]
    return compile_text(Source(f"{name}.rccl", cases.programs()[program]), options).plan


def results(kernel: CpuLauncher, p: Pattern, request: LaunchRequest) -> list[Array]:
    """Returns all ranks' memory after two launches on data whose sums are rounded."""
    c = p.collective
    memory = [perf.allocate(p, rank, request.in_place) for rank in range(c.n_ranks)]
    for _ in range(2):
        for rank, m in enumerate(memory):
            patterns.poison(m.slab)
            m.send[...] = patterns.rough(p, rank)
        kernel.launch([m.send for m in memory], [m.receive for m in memory], request)
    return [m.slab for m in memory]


@pytest.mark.slow
@named
def test_the_same_bits(plan: Plan, tmp_path: Path) -> None:
    kernels = []
    for kind, made in (
        ("gen", directory.files(Catalogue.of(plan), [CPU])),
        ("int", interpreter.files(plan)),
    ):
        interpreter.write(tmp_path / kind, made)
        source = tmp_path / kind / f"{plan.name}_cpu.cpp"
        kernels.append(CpuLauncher(source, plan.name, shape_of(plan), plan.collective))
    for count, window, in_place in ((1000, 1, False), (20011, 0, True), (20011, 3, False)):
        p = Pattern(plan.collective, "float32", "sum", count, count)
        request = LaunchRequest(count, "float32", "sum", in_place, 1024, window, timeout=10)
        generated, interpreted = (results(kernel, p, request) for kernel in kernels)
        for rank, slab in enumerate(interpreted):
            assert patterns.wrong(slab, generated[rank]) == 0, (count, window, in_place, rank)


@named
def test_the_table_is_the_whole_plan(plan: Plan) -> None:
    table = interpreter.op_table(plan)
    width = 8 if len(plan.queues) else 3
    operands = len(plan.src.rank) + len(plan.dst.rank)
    words = 4 * len(plan) + width * operands + len(plan.waits.index) + 2 * len(plan.posts.rank)
    assert len(table.words) == table.start[-1] == words
    assert len(table.start) == plan.n_ranks * int(plan.n_tb.max()) + 1
    assert (np.diff(table.start) >= 0).all()


def test_a_program_that_shared_memory_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "SHARED_WORDS", 50)
    source = Source("ring.rccl", cases.programs()["ring_allreduce"])
    with pytest.raises(ValueError, match="50 fit"):
        interpreter.source(compile_text(source, Options()).plan, CUDA)


def compiled(command: list[str], where: Path) -> str:
    """Returns a compiler's messages; it must succeed without warnings."""
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("name", "arch"), [*((n, "sm_90") for n in OPTIONS), ("slots", "sm_80")])
def test_nvcc_compiles_it(name: str, plan: Plan, arch: str, tmp_path: Path) -> None:
    interpreter.write(tmp_path, interpreter.files(plan, [CUDA]))
    flags = ["-std=c++17", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v", "-o", "k.cubin"]
    said = compiled([str(NVCC), *flags, f"{plan.name}.cu"], tmp_path)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", said)]
    most = SPILLS_MIXED if name in ("slots", "put") else SPILLS_OUT_OF_LINE
    assert spills and max(spills) <= most, said


@pytest.mark.slow
@named
@pytest.mark.skipif(CLANG is None, reason="clang-19 is not installed")
def test_clang_compiles_it_for_amd(plan: Plan, tmp_path: Path) -> None:
    interpreter.write(tmp_path, interpreter.files(plan, [HIP]))
    device = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc"]
    flags = ["-O3", "-std=c++17", "--no-gpu-bundle-output", "-Wall", "-Wextra", "-o", "k.hsaco"]
    compiled([str(CLANG), *device, *flags, f"{plan.name}.hip"], tmp_path)
    assert (tmp_path / "k.hsaco").read_bytes()[:4] == b"\x7fELF"
