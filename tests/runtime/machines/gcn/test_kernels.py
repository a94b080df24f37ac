"""Emitted HIP kernels on the machine for AMD: right for each seed, and none of what orders them is
superfluous. Needs clang, which takes seconds for a kernel."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.targets import HIP
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.runtime.machines.gcn.launcher import COMPILERS, GcnLauncher
from hccc.runtime.machines.gcn.mutants import GcnMutant, mutants, without
from hccc.runtime.machines.gcn.parse import parse
from tests.cli.commandline import Hccc
from tests.cli.commandline import hccc as hccc  # a fixture
from tests.emit import plans
from tests.marks import LONG, slow
from tests.runtime.handwritten import INCLUDE
from tests.runtime.machines.harness import MISALIGNED, OF_PRIMITIVES, Harness

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)), reason="clang-19 is not installed"
)

EXAMPLES = Path(__file__).parents[4] / "examples"
# Those of 32 ranks take minutes.
NAMES = [
    p.stem for p in sorted(EXAMPLES.glob("*.rccl")) if LONG > 1 or not p.stem.startswith("hm_")
]
SEEDS = 6
POLLED = ("port_hip.h", "block.h", "wait.h")
INVALIDATES = {"gfx942": ["buffer_inv"], "gfx90a": ["buffer_invl2", "buffer_wbinvl1_vol"]}
COUNT = 3000  # elements, which take two waves of a block
PORT = (INCLUDE / "hccc" / "port_hip.h").read_text().splitlines()
PRIMITIVE = (INCLUDE / "hccc" / "primitive.h").read_text().splitlines()
DTYPES = {"direct": "float32", "staged": "bfloat16"}


def run(hccc: Hccc, name: str, *options: str) -> str:
    """Runs an example; two launches in place and two out of place, each compared with the CPU.
    Returns what was printed."""
    code, out, err = hccc("run", EXAMPLES / f"{name}.rccl", "--device", "gcn", *options)
    assert code == 0, out + err
    assert "on gcn" in out
    return out


@pytest.mark.slow  # the machine takes half a minute to compile
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
@pytest.mark.parametrize("name, end, how", MISALIGNED)
def test_calls_of_nothing_and_misaligned_ones(
    hccc: Hccc, name: str, end: str, how: list[str]
) -> None:
    """A block of 13 elements of 2 bytes, or 1003: none but the first begins at a multiple of 16,
    but its copy in a queue does."""
    ends = ["-b", "0" if end != "16048" else end, "-e", end, "-i", end, "-n", "1"]
    run(hccc, name, *ends, "-d", "bfloat16", "--tune", "off", *how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtypes", "ops"),
    [
        ("float16,bfloat16,float8e4m3,float8e5m2", "sum,max"),
        ("float16,float64,complex64,complex128", "prod,avg"),
        ("int8,uint8,int16,uint16,bool", "sum,min"),
        ("int8,uint16,int32", "prod,avg,band,lor"),
        ("int32,uint32,int64,uint64", "sum,max"),
        ("int8,uint16,float32,bfloat16", "premul_sum"),
    ],
)
def test_types_and_reductions(hccc: Hccc, dtypes: str, ops: str) -> None:
    few = ["-b", "500", "-e", "500", "-n", "1", "--tune", "off"]
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
    run(hccc, name, *few, "-d", "int8,float16")


@pytest.mark.slow
def test_packets_for_short_calls_and_counters_for_others(hccc: Hccc) -> None:
    how = ["--protocol", "auto", "--cluster", str(EXAMPLES / "clusters" / "dgx-h100.cluster")]
    sizes = ["--max-sms", "1", "-b", "512", "-e", "256K", "-f", "512", "-n", "1"]
    rows = run(hccc, "direct_allgather", *how, *sizes).splitlines()
    served = [row.split()[-1] for row in rows if row.split()[:1] in (["512"], ["262144"])]
    assert served == ["direct_allgather_1", "direct_allgather_2"]


def ring(place: Path, transport: Transport = Transport.DIRECT) -> Harness:
    """Makes an AllReduce of 3 ranks with blocks of two waves."""
    options = Options(transport=transport, channels=2)
    plan = driver.compile_program(plans.ring_allreduce(3), options).plan
    return Harness(replace(plan, warps=4), place, GcnLauncher, HIP, COUNT)


Frames = list[tuple[str, int, int]]


def is_vote(frames: Frames) -> bool:
    """Returns whether it is in the vote of a block: no wave votes yes but in a lost launch."""
    begin = next(k for k, line in enumerate(PORT, 1) if "bool hccc_barrier_any(" in line)
    end = PORT.index("}", begin) + 1
    return any(name == "port_hip.h" and begin <= line <= end for name, line, _ in frames)


def is_first(frames: Frames) -> bool:
    """Returns whether it is the meeting of a primitive that waits for nobody: for what others of
    its block have stored. The first one has none before it."""
    return any(
        name == "primitive.h" and PRIMITIVE[line].strip() == "return true;"
        for name, line, _ in frames
    )


def ends_function(mutant: GcnMutant) -> bool:
    """Returns whether it is the wait that clang puts before a return; the caller waits again."""
    rest = mutant.text.splitlines()[mutant.line :]
    code = (line.strip() for line in rest)
    return next(line for line in code if line and line[0] not in ".;").startswith("s_setpc")


@pytest.mark.slow
@pytest.mark.parametrize("arch", [slow("gfx90a"), "gfx942"])
def test_what_orders_is_missed(tmp_path: Path, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever synchronises two primitives is missed. Of barriers in a row one is enough; a wait
    for loads alone is not missed where what reads their registers waits again. Where ranks enter
    and leave a launch, the ends of launches order more than the kernel does."""
    monkeypatch.setattr(GcnLauncher, "arch", arch)
    harness = ring(tmp_path)
    assert [harness.fault(harness.text, seed) for seed in range(SEEDS)] == [""] * SEEDS
    kernel = harness.kernel(harness.text)
    executed, waiting = kernel.executed_lines(), kernel.waiting_lines()

    def is_told(text: str) -> bool:
        return any(harness.fault(text, seed) for seed in range(SEEDS))

    told, groups = set[str](), defaultdict[object, set[int]](set)
    kept: list[tuple[GcnMutant, Frames, object]] = []
    group: object
    for mutant in mutants(harness.text):
        frames = kernel.places(mutant.line)
        if mutant.line not in executed or OF_PRIMITIVES.isdisjoint({name for name, *_ in frames}):
            continue
        opcode = mutant.was.split()[0]
        group = (opcode, *(frame for frame in frames if frame[0] not in POLLED))
        groups[group].add(mutant.line)
        if is_told(mutant.text):
            told.add(opcode)
        else:
            kept.append((mutant, frames, group))
    assert {"s_waitcnt", "s_barrier", "buffer_wbl2", *INVALIDATES[arch]} == told
    for mutant, frames, group in kept:
        is_wait = mutant.was.startswith("s_waitcnt")
        if is_wait and (mutant.line not in waiting or is_vote(frames) or ends_function(mutant)):
            continue
        together = without(harness.text, groups[group])
        assert is_first(frames) or is_told(together), (mutant.line, mutant.was, frames)


RELEASE = """  __builtin_amdgcn_fence(__ATOMIC_RELEASE, HCCC_FENCE_SCOPE);
  hccc_drain();
  hccc_st_relaxed(flag, value);"""
NAIVE = {  # the kernel's text, and what the language offers for it
    "barrier": ("  hccc_drain();\n  hccc_barrier_shared();", "  hccc_barrier_shared();"),
    "release": (RELEASE, "  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, HCCC_SCOPE);"),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", [slow("gfx90a"), "gfx942"])
@pytest.mark.parametrize("what", NAIVE)
def test_what_the_language_offers_does_not_suffice(
    tmp_path: Path, what: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GcnLauncher, "arch", arch)
    harness = ring(tmp_path, Transport.STAGED)
    naive = harness.edit("port_hip.h", *NAIVE[what])
    assert any(harness.fault(naive, seed) for seed in range(16 * SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("inline", [0, 1])
def test_ranks_of_one_device(tmp_path: Path, inline: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fences reach its other blocks only."""
    monkeypatch.setattr(GcnLauncher, "system_scope", 0)
    harness = ring(tmp_path)
    source = harness.source.read_text()
    was = "#define HCCC_INLINE "
    assert was in source
    harness.source.write_text(re.sub(f"{was}\\d", f"{was}{inline}", source))
    text = harness.compiled()
    assert [harness.fault(text, seed) for seed in range(SEEDS)] == [""] * SEEDS
    for fence in ("buffer_wbl2 sc1", "buffer_inv sc1"):
        less = without(text, [k for k, line in enumerate(text.splitlines(), 1) if fence in line])
        assert less != text and any(harness.fault(less, seed) for seed in range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("arch", [slow("gfx90a"), "gfx942"])
def test_packets_are_not_fenced(tmp_path: Path, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are accesses of 8 bytes, many of which are under way at the same time."""
    monkeypatch.setattr(GcnLauncher, "arch", arch)
    text = transfer.read(EXAMPLES / "direct_allreduce.rccl")
    plan = driver.compile_text(text, Options(protocol="ll")).plan
    code = parse(Harness(plan, tmp_path, GcnLauncher, HIP).text).code
    opcodes = [instruction.opcode for instruction in code]
    assert "buffer_wbl2" not in opcodes and "s_barrier" in opcodes
    most = loads = 0
    for opcode in opcodes:
        loads = 0 if opcode == "s_waitcnt" else loads + (opcode == "global_load_dwordx2")
        most = max(most, loads)
    assert most >= 14


CHECKED = "differ |= (found[g][i].high[0] ^ tag) | (found[g][i].high[1] ^ tag);"
BREAKS = {  # header, text, another in its place
    "no check": ("gpu_packets.h", "come = !(differ >> hccc_epoch_shift);", "come = true;"),
    "half a check": ("gpu_packets.h", CHECKED, "differ |= found[g][i].high[0] ^ tag;"),
    "one parity": ("launch.h", "static_cast<long long>(b.launch & 1)", "0LL"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", [w if k < 1 else slow(w) for k, w in enumerate(BREAKS)])
def test_a_broken_packet_is_told(tmp_path: Path, what: str) -> None:
    plan = driver.compile_program(plans.mesh_allreduce(3), Options(protocol="ll", channels=2)).plan
    harness = Harness(replace(plan, warps=4), tmp_path, GcnLauncher, HIP)
    assert [harness.fault(harness.text, seed) for seed in range(SEEDS)] == [""] * SEEDS
    text = harness.edit(*BREAKS[what])
    assert any(harness.fault(text, seed) for seed in range(16 * SEEDS))
