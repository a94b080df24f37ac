"""Kernels of protocol LL: right results at any speed of ranks, and no race in ThreadSanitizer.

Ranks run launch after launch with nothing but packets between them, with calls of all lengths, in
and out of place, from any epoch on. A kernel with one step left out is told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import NAMES, OPS, reduces
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.lang.transfer import load as transfer
from hccc.runtime.fault import LaunchError, WaitKind
from hccc.runtime.request import LaunchRequest
from hccc.testing import kernels
from tests.emit import plans
from tests.marks import slow, some

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAM = Path(__file__).with_name("programs") / "packets.cpp"
COUNT = 900
WORLD = """
#include "{source}"
static const long long world_count = {count};
static const unsigned world_epoch = {epoch}u, world_stale = {stale}u;
static const int world_root = {root};
"""
LAST = 0xFFFFFFFF


def made(program: Program, **options: object) -> Plan:
    return driver.compile_program(program, Options(protocol="ll", **options)).plan  # type: ignore[arg-type]


def example(name: str) -> Plan:
    return driver.compile_text(
        transfer.read(EXAMPLES / f"{name}.rccl"), Options(protocol="ll")
    ).plan


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "direct_allreduce",
        slow("ring_allreduce"),
        slow("rhd_allreduce"),
        slow("direct_allgather"),
        slow("ring_allgather"),
        slow("direct_reducescatter"),
        slow("direct_alltoall"),
        "direct_gather",
        slow("direct_scatter"),
        slow("binomial_broadcast"),
        slow("binomial_reduce"),
        slow("sendrecv"),
    ],
)
def test_examples(name: str) -> None:
    """Each element of every rank, in and out of place, of several lengths."""
    plan = example(name)
    for count in (0, 1, 3, 129, 1021):
        assert kernels.wrong_elements(plan, LaunchRequest(count, "int32", "sum")) == 0


@pytest.mark.slow
@pytest.mark.parametrize("fuse", ["auto", slow("none"), slow("reduce"), slow("full")])
@pytest.mark.parametrize("channels", [slow(1), 3])
@pytest.mark.parametrize("blocks", [slow(1), 3])
def test_channels_blocks_and_fusions(fuse: str, channels: int, blocks: int) -> None:
    allocator = "auto" if blocks == 1 else "connection"
    plan = made(plans.mesh_allreduce(4), fuse=fuse, channels=channels, allocator=allocator)
    assert blocks == 1 or plan.n_tb.max() > 1
    for count in (1, 77, 1500):
        assert kernels.wrong_elements(plan, LaunchRequest(count, "float32", "sum")) == 0


QUICK = ("complex128", "sum")
TYPES = [(dtype, op) for dtype in NAMES for op in OPS if reduces(dtype, op)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "op"), [QUICK, *(slow(*one) for one in some(TYPES, 5) if one != QUICK)]
)
def test_types_and_reductions(dtype: str, op: str) -> None:
    """Of elements of 16 bytes, some lie in two packets."""
    plan = made(plans.mesh_allreduce(3))
    for count in (1, 50, 701):
        assert kernels.wrong_elements(plan, LaunchRequest(count, dtype, op)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("op", ["sum", slow("prod")])
def test_the_bits_are_those_of_the_simple_protocol(op: str) -> None:
    program = plans.mesh_allreduce(4)
    rng = np.random.default_rng(0)
    values = [(rng.standard_normal(999) * 10.0 ** rng.integers(-3, 3, 999)) for _ in range(4)]
    inputs = [v.astype(np.float16) for v in values]
    request = LaunchRequest(999, "float16", op)
    simple = kernels.launch(
        driver.compile_program(program, Options(fuse="full")).plan, inputs, request
    )
    for fuse in ("auto", "full"):
        ll = kernels.launch(made(program, fuse=fuse), inputs, request)
        assert [a.tobytes() for a in simple] == [a.tobytes() for a in ll]


def test_a_rank_that_does_not_come_is_named() -> None:
    plan = made(plans.mesh_allreduce(2))
    request = LaunchRequest(8, "float32", timeout=0.1, join_timeout=0.1)
    buffers = [np.ones(8, np.float32) for _ in range(4)]
    with kernels.built(plan, request) as host:
        # Rank 1 is an epoch ahead, so that what it sends is not what rank 0 waits for.
        host.flags[1].view(np.uint32)[32 * host.shape.state_at + 1] = 1
        with pytest.raises(LaunchError) as error:
            host.launch(buffers[:2], buffers[2:], request)
        fault = error.value.fault
        assert fault.kind is WaitKind.PACKET and fault.flag == 1 - fault.rank
        waits = f"packet slot {fault.micro_batch} waited for packets of rank {fault.flag}: want"
        assert waits in str(fault) and 0 <= fault.micro_batch < host.shape.packets
        with pytest.raises(LaunchError):
            host.launch(buffers[:2], buffers[2:], request)
        host.reset()
        host.launch(buffers[:2], buffers[2:], request)
        assert all((b == 2).all() for b in buffers[2:])


def test_a_call_that_is_too_large_is_refused() -> None:
    plan = made(plans.mesh_allreduce(2))
    most = plan.max_bytes // 4
    assert kernels.wrong_elements(plan, LaunchRequest(most, "float32")) == 0
    with pytest.raises(UserError, match="packets in a part of a chunk"):
        kernels.wrong_elements(plan, LaunchRequest(2 * most, "float32"))


def run(
    plan: Plan,
    into: Path,
    epoch: int = 0,
    edit: tuple[str, str, str] | None = None,
    sanitize: bool = True,
    stale: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Builds and runs the program. edit: a header, its text, another in its place; stale: the flag
    of all packets before."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("g++ is not installed")
    cpu = [target for target in TARGETS if target.name == "cpu"]
    folder = into / "kernels"
    directory.write(folder, directory.files(Catalogue.of(plan), cpu, plan_json.dumps(plan)))
    source = f"{plan.name}{cpu[0].suffix}"
    (folder / "world.h").write_text(
        WORLD.format(
            source=source,
            count=COUNT,
            epoch=epoch,
            stale=stale,
            root=plan.collective.root if plan.collective.rooted else -1,
        )
    )
    if edit:
        header = folder / "hccc" / edit[0]
        text = header.read_text()
        assert text.count(edit[1]) == 1
        header.write_text(text.replace(edit[1], edit[2]))
    flags = ["-std=c++17", "-O1", "-g1", "-pthread", "-DHCCC_DTYPE=int32"]
    flags += ["-fsanitize=thread"] if sanitize else []
    command = [compiler, *flags, "-I.", str(PROGRAM), "-o", "program"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=200)
    return subprocess.run(
        ["./program"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"TSAN_OPTIONS": "exitcode=66"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [0, slow(LAST - 3), LAST - 9, slow(LAST)])
@pytest.mark.parametrize("name", ["mesh_allreduce", slow("ring_allreduce"), "broadcast"])
def test_no_race_at_any_speed(name: str, epoch: int, tmp_path: Path) -> None:
    plan = made(getattr(plans, name)(3))
    done = run(plan, tmp_path, epoch)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]


BREAKS = {
    "one parity": ("launch.h", "static_cast<long long>(b.launch & 1)", "0LL"),
    "a flag without release": (
        "packets.h",
        "hccc_st_release(&line->flag, b.launch)",
        "hccc_st_relaxed(&line->flag, b.launch)",
    ),
    "a flag before its data": (
        "packets.h",
        "    if (bytes - at >= HCCC_LINE_DATA) __builtin_memcpy(line->data, from + at",
        "    hccc_st_release(&line->flag, b.launch);\n"
        "    if (bytes - at >= HCCC_LINE_DATA) __builtin_memcpy(line->data, from + at",
    ),
    "no wait": ("packets.h", "if (!hccc_wait(b, &last.flag, b.launch, cause)) return false;", ""),
    "nothing said without data": ("packets.h", "valid || (!sub && !b.channel)", "valid"),
    "slots of every channel in one place": (
        "launch.h",
        "* HCCC_CHANNELS + b.channel",
        "* HCCC_CHANNELS",
    ),
}


def is_told(plan: Plan, edit: tuple[str, str, str], place: Path) -> bool:
    """Runs a plan with an edited header. Not every run meets the mistake: one of a few does."""
    for k in range(5):
        (folder := place / str(k)).mkdir()
        done = run(plan, folder, edit=edit)
        if "data race" in done.stderr or "wrong" in done.stdout or "status" in done.stdout:
            return True
    return False


@pytest.mark.parametrize("what", [slow(name) for name in BREAKS])
def test_a_broken_kernel_is_told(what: str, tmp_path: Path) -> None:
    assert is_told(made(plans.mesh_allreduce(3), channels=2), BREAKS[what], tmp_path)


GREETINGS = {
    "nobody waits for greetings": ("launch.h", "!hccc_await_greetings(b)", "false"),
    "one slot for all greetings": (
        "packets.h",
        "HCCC_PACKETS - HCCC_RANKS + from)",
        "HCCC_PACKETS - HCCC_RANKS)",
    ),
    "greetings in the slot of a message": (
        "packets.h",
        "HCCC_PACKETS - HCCC_RANKS + from)",
        "from)",
    ),
}


@pytest.mark.parametrize("what", [slow(name) for name in GREETINGS])
def test_a_kernel_that_greets_wrongly_is_told(what: str, tmp_path: Path) -> None:
    assert is_told(made(plans.broadcast(3)), GREETINGS[what], tmp_path)


CLEARS = "b.launch >= 0xfffffffeu && i < e.k"


@pytest.mark.slow
@pytest.mark.parametrize("when", [CLEARS, "false", f"valid && {CLEARS}"])
def test_old_packets_are_forgotten_before_epochs_wrap(when: str, tmp_path: Path) -> None:
    """A long call left packets of epoch 3, 2^32 launches ago. The calls before the wrap are short,
    and the next of epoch 3 is long; slots that short calls do not read are cleared too."""
    plan, edit = made(plans.mesh_allreduce(2)), ("packets.h", CLEARS, when)
    done = run(plan, tmp_path, LAST - 1, edit, sanitize=False, stale=3)
    assert (done.stdout == "done\n") == (when == CLEARS), done.stdout
