"""Emitted CUDA kernels on the machine for PTX: right for each seed, and none of what orders them
is superfluous. Needs nvcc, which takes seconds for a kernel."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.targets import CUDA
from hccc.ir.plan import Plan
from hccc.lang.transfer import load as transfer
from hccc.runtime.abi import Params
from hccc.runtime.machines import launcher
from hccc.runtime.machines.ptx.launcher import PtxLauncher
from hccc.runtime.machines.ptx.mutants import mutants
from tests.cli.commandline import Hccc
from tests.cli.commandline import hccc as hccc  # a fixture
from tests.emit import plans
from tests.marks import LONG, slow
from tests.runtime.machines.harness import MISALIGNED, OF_PRIMITIVES, Harness

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

EXAMPLES = Path(__file__).parents[4] / "examples"
# Those of 32 ranks take minutes.
NAMES = [
    p.stem for p in sorted(EXAMPLES.glob("*.rccl")) if LONG > 1 or not p.stem.startswith("hm_")
]
DTYPES = {"direct": "float32", "staged": "bfloat16"}
SEEDS = 6
POLLED = ("port_cuda.h", "block.h", "wait.h")


def harness_of(plan: Plan, place: Path) -> Harness:
    """Makes a harness of a plan's CUDA kernels."""
    return Harness(plan, place, PtxLauncher, CUDA)


@pytest.mark.slow
@pytest.mark.parametrize("ring", [True, False])
def test_what_orders_is_missed(tmp_path: Path, ring: bool) -> None:
    """Whatever synchronises two primitives is missed. Where ranks leave a launch some is not: there
    it keeps a rank from overwriting what a peer still reads, and loads of the machine are done when
    they are executed; and of two barriers in a row one is enough."""
    made = (plans.ring_allreduce if ring else plans.mesh_allreduce)(3, channels=2)
    harness = harness_of(plans.compiled(replace(made, warps=2)), tmp_path)
    assert [harness.fault(harness.text, seed) for seed in range(SEEDS)] == [""] * SEEDS
    kernel = harness.kernel(harness.text)
    executed = kernel.executed_lines()
    told, waits = set[str](), set[Any]()
    kept: list[Any] = []  # what was not missed, with the wait that it is of
    for mutant in mutants(harness.text):
        if mutant.line not in executed:
            continue
        places = kernel.places(mutant.line)
        wait = tuple(place for place in places if place[0] not in POLLED)
        of_primitive = not OF_PRIMITIVES.isdisjoint({name for name, *_ in places})
        if any(harness.fault(mutant.text, seed) for seed in range(SEEDS)):
            told.add(".".join(mutant.was.split()[0].split(".")[:2]))
            waits.add(wait)
        elif not mutant.was.startswith("bar") and of_primitive:
            kept.append((wait, mutant))
    # A wait polls at two places; at the first hardly anything has arrived.
    assert [mutant for wait, mutant in kept if wait not in waits] == []
    assert {"st.release", "ld.acquire", "bar.sync", "bar.red"} <= told


CHECKED = "differ |= (found[g][i].high[0] ^ tag) | (found[g][i].high[1] ^ tag);"
BREAKS = {  # header, text, another in its place
    "no check": ("gpu_packets.h", "come = !(differ >> hccc_epoch_shift);", "come = true;"),
    "half a check": ("gpu_packets.h", CHECKED, "differ |= found[g][i].high[0] ^ tag;"),
    "one parity": ("launch.h", "static_cast<long long>(b.launch & 1)", "0LL"),
    "channels in one place": ("launch.h", "* HCCC_CHANNELS + b.channel", "* HCCC_CHANNELS"),
    "the same epoch": ("launch.h", "b.launch = hccc_next_epoch(state.launch)", "b.launch = 1"),
}


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """Makes an AllReduce of 3 ranks that exchange packets."""
    options = Options(protocol="ll", channels=2)
    plan = driver.compile_program(plans.mesh_allreduce(3), options).plan
    return harness_of(replace(plan, warps=2), tmp_path_factory.mktemp("packets"))


@pytest.mark.slow
def test_packets_are_right_in_any_order(packets: Harness) -> None:
    assert [packets.fault(packets.text, seed) for seed in range(SEEDS)] == [""] * SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True])
def test_packets_say_of_which_call_they_are(
    packets: Harness, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_rank = launcher._of_rank

    def signed(params: bytes, rank: int) -> bytes:
        own = Params.from_buffer_copy(of_rank(params, rank))
        own.signature = 5 + (other and rank == 1)
        return bytes(own)

    monkeypatch.setattr(launcher, "_of_rank", signed)
    for seed in range(SEEDS):
        assert ("makes another call" in packets.fault(packets.text, seed)) == other


@pytest.mark.slow
@pytest.mark.parametrize("what", [w if k < 2 else slow(w) for k, w in enumerate(BREAKS)])
def test_a_broken_packet_is_told(packets: Harness, what: str) -> None:
    text = packets.edit(*BREAKS[what])
    assert any(packets.fault(text, seed) for seed in range(4 * SEEDS))


FORGETS = "(b.launch & hccc_epoch_mask) >= hccc_epoch_mask - 1"


@pytest.mark.slow
def test_old_packets_are_forgotten_before_epochs_wrap(tmp_path: Path) -> None:
    options = Options(protocol="ll")
    plan = driver.compile_program(plans.mesh_allreduce(2), options).plan
    harness = harness_of(replace(plan, warps=1), tmp_path)
    assert [harness.fault_after_wrap(harness.text, seed) for seed in range(SEEDS)] == [""] * SEEDS
    for never in ("false", f"{FORGETS} + 1"):
        text = harness.edit("gpu_packets.h", FORGETS, never)
        assert "wrong data of 50" in [harness.fault_after_wrap(text, s) for s in range(SEEDS)]


@pytest.mark.slow
def test_packets_order_blocks_of_a_rank(tmp_path: Path) -> None:
    """A block stores a sum of some ranks where another stores that of all, when others told it."""
    options = Options(protocol="ll", allocator="connection")
    text = transfer.read(EXAMPLES / "rhd_allreduce.rccl")
    harness = harness_of(replace(driver.compile_text(text, options).plan, warps=1), tmp_path)
    assert harness.plan.n_tb.max() > 1
    assert [harness.fault(harness.text, seed) for seed in range(4 * SEEDS)] == [""] * 4 * SEEDS
    naive = harness.edit("gpu_packets.h", "hccc_orders = HCCC_BLOCKS > 1", "hccc_orders = false")
    assert any(harness.fault(naive, seed) for seed in range(4 * SEEDS))


def run(hccc: Hccc, name: str, *options: str) -> str:
    """Runs an example; two launches in place and two out of place, each compared with the CPU.
    Returns what was printed."""
    code, out, err = hccc("run", EXAMPLES / f"{name}.rccl", "--device", "ptx", *options)
    assert code == 0, out + err
    assert "on ptx" in out
    return out


def test_run(hccc: Hccc) -> None:
    run(hccc, "direct_alltoall", "-b", "4000", "-e", "4000", "-d", "bfloat16", "--tune", "off")


@pytest.mark.slow
def test_packets_for_short_calls_and_counters_for_others(hccc: Hccc) -> None:
    how = ["--protocol", "auto", "--cluster", str(EXAMPLES / "clusters" / "dgx-h100.cluster")]
    sizes = ["--max-sms", "1", "-b", "512", "-e", "256K", "-f", "512", "-n", "1"]
    rows = run(hccc, "direct_allgather", *how, *sizes).splitlines()
    served = [row.split()[-1] for row in rows if row.split()[:1] in (["512"], ["262144"])]
    assert served == ["direct_allgather_1", "direct_allgather_2"]


def test_run_without_nvcc(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nvcc" else find(name))
    code, _, err = hccc("run", EXAMPLES / "sendrecv.rccl", "--device", "ptx")
    assert code == 1 and "E470" in err and "nvcc" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("transport", ["direct", "staged"])
def test_every_example(hccc: Hccc, name: str, transport: str) -> None:
    first, dtypes = ("1K", "float32,bfloat16") if LONG > 1 else ("4K", DTYPES[transport])
    few = ["-b", first, "-e", "4K", "--tune", "off", "--transport", transport]
    run(hccc, name, *few, "-n", "1", "-d", dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("name, end, how", MISALIGNED)
def test_calls_of_nothing_and_misaligned_ones(
    hccc: Hccc, name: str, end: str, how: list[str]
) -> None:
    """A block of 13 elements of 2 bytes, or 1003: none but the first begins at a multiple of 16,
    but its copy in a queue does."""
    ends = ["-b", "0" if end != "16048" else end, "-e", end, "-i", end, "-n", "1"]
    run(hccc, name, *ends, "-d", "bfloat16", "--tune", "off", *how)


@pytest.mark.slow
def test_types_and_reductions(hccc: Hccc) -> None:
    few = ["-b", "1K", "-e", "1K", "-n", "1", "--tune", "off"]
    run(hccc, "sendrecv", *few, "-d", "int8,float64")
    run(hccc, "ring_allreduce", *few, "-d", "int8", "-o", "land")
    run(hccc, "ring_allreduce", *few, "-d", "float32,float16,bfloat16", "-o", "sum,max")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct_allreduce", "ring_allreduce", "direct_alltoall"])
def test_packets_of_examples(hccc: Hccc, name: str) -> None:
    few = ["--protocol", "ll", "-b", "0", "-e", "2006", "-i", "1003", "-n", "1"]
    run(hccc, name, *few, "-d", "bfloat16,complex128")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_other_architectures(hccc: Hccc, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    monkeypatch.setattr(PtxLauncher, "arch", arch)
    run(hccc, "rhd_allreduce", "-b", "1K", "-e", "1K", "-d", "float32,float16", "--tune", "off")
