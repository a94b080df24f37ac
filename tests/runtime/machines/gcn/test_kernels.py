"""Emitted HIP kernels on the machine for AMD: right for each seed, and none of what orders them is
superfluous. Needs clang, which takes seconds for a kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hccc.runtime.machines.gcn.launcher import COMPILERS
from tests.cli.commandline import Hccc
from tests.cli.commandline import hccc as hccc  # a fixture
from tests.marks import LONG

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="clang-19 is not installed"
)

EXAMPLES = Path(__file__).parents[4] / "examples"
# Those of 32 ranks take minutes.
NAMES = [
    p.stem for p in sorted(EXAMPLES.glob("*.rccl")) if LONG > 1 or not p.stem.startswith("hm_")
]
DTYPES = {"direct": "float32", "staged": "bfloat16"}


def run(hccc: Hccc, name: str, *options: str) -> str:
    """Runs an example; two launches in place and two out of place, each compared with the CPU.
    Returns what was printed."""
    code, out, err = hccc("run", EXAMPLES / f"{name}.rccl", "--device", "gcn", *options)
    assert code == 0, out + err
    assert "on gcn" in out
    return out


def test_run(hccc: Hccc) -> None:
    run(hccc, "sendrecv", "-b", "4000", "-e", "4000", "-d", "bfloat16", "--tune", "off")


def test_run_without_clang(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if "clang" in name else find(name))
    code, _, err = hccc("run", EXAMPLES / "sendrecv.rccl", "--device", "gcn")
    assert code == 1 and "E470" in err and "clang" in err


def test_an_architecture_is_a_machines(hccc: Hccc) -> None:
    code, _, err = hccc("run", EXAMPLES / "sendrecv.rccl", "--device", "cpu", "--arch", "gfx90a")
    assert code == 2 and "E415" in err and "--arch" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transport", ["direct", "staged"])
def test_every_example(hccc: Hccc, name: str, transport: str) -> None:
    first, dtypes = ("1K", "float32,bfloat16") if LONG > 1 else ("4K", DTYPES[transport])
    few = ["-b", first, "-e", "4K", "--tune", "off", "--transport", transport]
    run(hccc, name, *few, "-n", "1", "-d", dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("name, end", [("direct_allreduce", "26"), ("ring_allgather", "208")])
def test_calls_of_nothing_and_misaligned_ones(hccc: Hccc, name: str, end: str) -> None:
    """A block of 13 elements of 2 bytes: none but the first begins at a multiple of 16."""
    run(hccc, name, "-b", "0", "-e", end, "-i", end, "-n", "1", "-d", "bfloat16", "--tune", "off")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize(
    ("dtypes", "ops"),
    [
        ("float16,bfloat16,float8e4m3,float8e5m2,float32,float64", "sum,prod,min,max,avg"),
        ("int8,uint8,int16,uint16,bool", "sum,prod,min,max,avg"),
        ("int32,uint32,int64,uint64", "sum,prod,min,max,avg,band,lor"),
        ("complex64,complex128", "sum,prod"),
        ("int8,uint16,float32,bfloat16", "premul_sum"),
    ],
)
def test_types_and_reductions(hccc: Hccc, arch: str, dtypes: str, ops: str) -> None:
    few = ["-b", "500", "-e", "500", "-n", "1", "--tune", "off", "--arch", arch]
    run(hccc, "direct_reducescatter", *few, "-d", dtypes, "-o", ops)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct_allreduce", "ring_allreduce", "direct_alltoall"])
def test_packets_of_examples(hccc: Hccc, name: str) -> None:
    few = ["--protocol", "ll", "-b", "0", "-e", "2006", "-i", "1003", "-n", "1"]
    run(hccc, name, *few, "-d", "bfloat16,complex128")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["simple", "ll"])
@pytest.mark.parametrize("name", ["rhd_allreduce", "direct_alltoall"])
def test_an_older_architecture(hccc: Hccc, name: str, protocol: str) -> None:
    few = ["-b", "1K", "-e", "1K", "-n", "1", "--arch", "gfx90a", "--protocol", protocol]
    run(hccc, name, *few, "-d", "float32,float16")


@pytest.mark.slow
def test_packets_for_short_calls_and_counters_for_others(hccc: Hccc) -> None:
    how = ["--protocol", "auto", "--cluster", str(EXAMPLES / "clusters" / "dgx-h100.cluster")]
    sizes = ["--max-sms", "1", "-b", "512", "-e", "128K", "-f", "256", "-n", "1"]
    rows = run(hccc, "direct_allgather", *how, *sizes).splitlines()
    served = [row.split()[-1] for row in rows if row.split()[:1] in (["512"], ["131072"])]
    assert served == ["direct_allgather_1", "direct_allgather_2"]
