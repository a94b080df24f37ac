"""The emitted directory builds, and its library computes the collective."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.ir import plan_check
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.communicator.gpu_kernels import COMBINE
from hccc.runtime.measure.patterns import Pattern
from tests.emit import launch, plans
from tests.emit.plans import written
from tests.marks import slow

CASES: dict[str, Plan] = {
    "ring": plans.compiled(plans.ring_allreduce(4, channels=2)),
    "turns": plans.compiled(plans.ring_allgather(5), transport=Transport.STAGED, blocks=1),
    "hierarchical": plans.compiled(plans.hierarchical_mesh(2, 4), level="none"),
    "mesh": plans.compiled(plans.mesh_allreduce(4), level="reduce"),
    "staged_ring": plans.compiled(plans.ring_allreduce(3), transport=Transport.STAGED),
    "allgather": plans.compiled(plans.ring_allgather(5)),
    "alltoall": plans.compiled(plans.alltoall(4)),
    "broadcast": plans.compiled(plans.broadcast(4)),
    "alltoallv": plans.compiled(plans.uneven(plans.alltoall(4))),
    "reducescatterv": plans.compiled(plans.uneven(plans.direct_reducescatter(4))),
    "switched": plans.switched(plans.mesh_allreduce(4, channels=2)),
}


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Returns a command's output; fails with its messages."""
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def library(
    plan: Plan, place: Path, cxx: str, dtype: str, op: str, more: tuple[str, ...] = ()
) -> Path:
    """Builds one entry and the dispatcher as a shared library, with all warnings as errors."""
    written(plan, place)
    entry = f"ENTRY({dtype}, {op})"
    (place / f"{plan.name}_built.h").write_text(f"#define HCCC_BUILT(ENTRY) {entry}\n")
    sources = [f"{plan.name}_cpu.cpp", f"{plan.name}_cpu_dispatch.cpp"]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    chosen = [f"-DHCCC_DTYPE={dtype}", f"-DHCCC_OP={op}"]
    run(cxx, *flags, *more, *chosen, *sources, "-o", "lib.so", cwd=place)
    return place / "lib.so"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_cpu_kernel_computes_the_collective(case: str, tmp_path: Path, cxx: str) -> None:
    plan = CASES[case]
    dtype = "int32" if plan.collective.reduces else "uint32"
    world = launch.PlanRanks(library(plan, tmp_path / "k", cxx, dtype, "sum"), plan)
    for seed, count in enumerate((0, 1, 7, 1000, 4099)):
        for in_place in (False, True):
            p = Pattern(plan.collective, dtype, "sum", count, seed)
            assert world.wrong(p, in_place=in_place, micro_batch_bytes=256) == 0
            assert world.wrong(p, in_place=in_place, micro_batch_bytes=256, window=1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 3, *map(slow, (5, 8, 9)), 1 << 16])
def test_nodes_that_do_not_divide_the_ranks(gpus: int, tmp_path: Path, cxx: str) -> None:
    """A program's header refuses them, a plan from elsewhere may have them: a hint, no more."""
    for case in ("hierarchical", "allgather"):
        plan = replace(CASES[case], gpus_per_node=gpus)
        plan_check.check(plan)
        world = launch.PlanRanks(library(plan, tmp_path / case, cxx, "uint32", "sum"), plan)
        p = Pattern(plan.collective, "uint32", "sum", 1000)
        assert world.wrong(p, micro_batch_bytes=256) == 0


def test_what_a_plan_does_not_serve_is_refused(tmp_path: Path, cxx: str) -> None:
    plan = replace(CASES["ring"], in_place=False, max_window=2)
    world = launch.PlanRanks(library(plan, tmp_path / "k", cxx, "int32", "sum"), plan)
    p = Pattern(plan.collective, "int32", "sum", 500)
    assert world.wrong(p, micro_batch_bytes=64) == 0
    with pytest.raises(AssertionError, match="'is': 2"):
        world.wrong(p, in_place=True)


@pytest.mark.parametrize("op", ["avg", "max"])
def test_other_reductions(op: str, tmp_path: Path, cxx: str) -> None:
    plan = CASES["ring"]
    world = launch.PlanRanks(library(plan, tmp_path / "k", cxx, "bfloat16", op), plan)
    assert world.wrong(Pattern(plan.collective, "bfloat16", op, 777)) == 0


GPUS = ["ring", "staged_ring", "alltoall", "alltoallv", "reducescatterv", "switched"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", GPUS)
def test_nvcc_compiles_without_spills(case: str, tmp_path: Path, nvcc: str) -> None:
    place = written(CASES[case], tmp_path / "k")
    name = CASES[case].name
    flags = ["-std=c++17", "-O3", "-arch=sm_90", "-cubin", "-Xptxas", "-v"]
    said = run(nvcc, *flags, "-o", "k.cubin", f"{name}.cu", cwd=place)
    assert "0 bytes spill stores" in said


@pytest.mark.slow
@pytest.mark.parametrize("case", GPUS)
def test_clang_compiles_for_amd(case: str, tmp_path: Path, hip: str) -> None:
    place = written(CASES[case], tmp_path / "k")
    device = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc"]
    flags = ["-O3", "-std=c++17", "--no-gpu-bundle-output", "-o", "k.hsaco"]
    run(hip, *device, *flags, f"{CASES[case].name}.hip", cwd=place)
    assert (place / "k.hsaco").read_bytes()[:4] == b"\x7fELF"


REDUCTIONS = [
    ("float32", "sum"),
    slow("bfloat16", "max"),
    slow("bool", "lor"),
    slow("int64", "min"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "op"), REDUCTIONS)
def test_reductions_of_jobs(dtype: str, op: str, tmp_path: Path, nvcc: str, hip: str) -> None:
    """What reduces two arrays on a GPU is one text for both platforms."""
    include = COMBINE.parent
    words = ["-std=c++17", "-O3", f"-DHCCC_DTYPE={dtype}", f"-DHCCC_OP={op}", f"-I{include}"]
    run(nvcc, *words, "-arch=sm_90", "-cubin", "-o", "k.cubin", str(COMBINE), cwd=tmp_path)
    device = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc"]
    run(hip, *device, *words, "--no-gpu-bundle-output", "-o", "k", str(COMBINE), cwd=tmp_path)
    assert (tmp_path / "k").read_bytes()[:4] == b"\x7fELF"
