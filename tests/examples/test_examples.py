"""Every example: runs right on the CPU, and its CUDA and HIP compile as the GPUs need them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hccc.base import dtypes
from hccc.cli.main import cli
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.lang.transfer import load as transfer
from tests.marks import LONG, slow, some

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.rccl"))
DTYPES = ",".join(dtypes.NAMES)
OPS = ",".join(dtypes.OPS)
NVCC, CLANG = shutil.which("nvcc"), shutil.which("clang-19")
# Bytes of registers kept in memory around calls: in a body, around looks for late ranks;
# in one that hands over to a proxy, around that; in straight-line code, around every body.
SPILLS = {"body": 128, "putting": 256, "kernel": 1024}

COMPILED = ("hm_allreduce", "ring_allreduce", "direct_alltoall", "binomial_reduce")  # quickly

example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)


def on(new: str, old: str) -> pytest.MarkDecorator:
    """Returns the cases of a compiler's test: each example for the newer architecture, every fifth
    for the older, whose bodies tests/runtime/test_gpu_compile.py compiles too."""
    cases = [(p, new) if p.stem in COMPILED else slow(p, new) for p in EXAMPLES]
    return pytest.mark.parametrize(
        ("path", "arch"),
        [*cases, *(slow(p, old) for p in some(EXAMPLES, 5))],
        ids=lambda value: value if isinstance(value, str) else value.stem,
    )


def run(path: Path, *options: str) -> list[dict[str, Any]]:
    """Returns the rows of `hccc run --json`, each checked on every element of every rank."""
    shown = CliRunner().invoke(cli, ["run", str(path), "--json", "-n", "1", "-w", "1", *options])
    assert shown.exit_code == 0, shown.output
    rows: list[dict[str, Any]] = json.loads(shown.stdout)["results"]
    assert rows
    return rows


def wrong(rows: list[dict[str, Any]]) -> list[object]:
    """Lists `nwrong` of every row, out of place and in place."""
    return [row[kind]["nwrong"] for row in rows for kind in ("out_of_place", "in_place")]


def test_the_examples_are_all_there() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names >= {
        "hm_allgather",
        "hm_reducescatter",
        "hm_allreduce",
        "ring_allgather",
        "rhd_allreduce",
        "ring_reducescatter",
        "ring_allreduce",
        "binomial_broadcast",
        "binomial_reduce",
        "direct_alltoall",
        "direct_gather",
        "direct_scatter",
        "sendrecv",
    }


@pytest.mark.quick(4)
@example
@pytest.mark.parametrize("transport", ["direct", slow("staged")])
def test_runs_right(path: Path, transport: str) -> None:
    rows = run(
        path, "--transport", transport, "-b", "500", "-e", "300K", "-f", "25", "--micro-batch", "4K"
    )
    assert wrong(rows) == [0] * 2 * len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", [slow("rhd_allreduce"), "direct_alltoall"])
def test_every_dtype(name: str) -> None:
    rows = run(FOLDER / f"{name}.rccl", "-d", DTYPES, "-b", "16K", "-e", "16K")
    assert len(rows) == len(DTYPES.split(","))
    assert wrong(rows) == [0] * 2 * len(rows)


@pytest.mark.quick(0)
@pytest.mark.parametrize("dtype", ["float16", *([slow(DTYPES)] if LONG > 1 else [])])
def test_every_operation(dtype: str) -> None:
    ops = [op for op in OPS.split(",") if any(dtypes.reduces(d, op) for d in dtype.split(","))]
    sizes = ("-b", "10000", "-e", "10000")
    rows = run(FOLDER / "ring_allreduce.rccl", "-d", dtype, "-o", ",".join(ops), *sizes)
    assert len(rows) == sum(dtypes.reduces(d, op) for op in ops for d in dtype.split(","))
    assert wrong(rows) == [0] * 2 * len(rows)


def emitted(path: Path, into: Path) -> Path:
    """Writes an example's sources and returns their directory."""
    plan = driver.compile_text(transfer.read(path), Options()).plan
    directory.write(
        into / "kernels", directory.files(Catalogue.of(plan), TARGETS, plan_json.dumps(plan))
    )
    return into / "kernels"


def compiled(arguments: list[str], where: Path) -> str:
    """Returns a compiler's messages; it must succeed."""
    done = subprocess.run(arguments, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
@on("sm_90", "sm_80")
@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
def test_cuda_compiles_without_spills(path: Path, arch: str, tmp_path: Path) -> None:
    kernels = emitted(path, tmp_path)
    (source,) = kernels.glob("*.cu")
    said = compiled(
        [
            str(NVCC),
            "-std=c++17",
            "-O3",
            f"-arch={arch}",
            "-cubin",
            "-Xptxas",
            "-v",
            "-o",
            "kernel.cubin",
            source.name,
        ],
        kernels,
    )
    spills = re.findall(
        r"Function properties for (\S+)\n.*, (\d+) bytes spill stores, (\d+) bytes spill loads",
        said,
    )
    assert spills, said
    inlined = "#define HCCC_INLINE 1" in source.read_text()
    for function, stores, loads in spills:
        kinds = ("kernel" if function == "hccc_kernel" else "body", "putting")
        most = SPILLS[kinds["putting" in function]]
        if inlined:
            most = SPILLS["body"] // 2
        assert max(int(stores), int(loads)) <= most, said


@pytest.mark.slow
@on("gfx942", "gfx90a")
@pytest.mark.skipif(CLANG is None, reason="clang-19 is not installed")
def test_hip_compiles(path: Path, arch: str, tmp_path: Path) -> None:
    kernels = emitted(path, tmp_path)
    (source,) = kernels.glob("*.hip")
    compiled(
        [
            str(CLANG),
            "-x",
            "hip",
            "--cuda-device-only",
            f"--offload-arch={arch}",
            "-nogpulib",
            "-nogpuinc",
            "-O3",
            "-std=c++17",
            "--no-gpu-bundle-output",
            "-Werror",
            "-o",
            "kernel.hsaco",
            source.name,
        ],
        kernels,
    )
    assert (kernels / "kernel.hsaco").stat().st_size > 1000


@pytest.mark.quick(0)
@pytest.mark.parametrize(("dtype", "ranks"), [("int8", 128), slow("uint8", 256)])
def test_averages_over_more_ranks_than_the_type_counts(
    dtype: str, ranks: int, tmp_path: Path
) -> None:
    text = (FOLDER / "ring_allreduce.rccl").read_text()
    for key in ("nRanks", "GPUPerNode", "NICPerNode"):
        text = text.replace(f"{key}=8", f"{key}={ranks}")
    path = tmp_path / "ring.rccl"
    path.write_text(text)
    assert wrong(run(path, "-d", dtype, "-o", "avg", "-b", "2K", "-e", "2K", "--tune", "off")) == [
        0,
        0,
    ]
