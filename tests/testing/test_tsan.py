"""Plans that the race proof accepts show no race when their CPU kernels run under ThreadSanitizer.

Every thread block is an OS thread then, and several launches run back to back, in and out of
place, with all windows. A plan with a wait deleted shows one.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import NetworkLowering
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count
from hccc.ir.plan import Plan
from hccc.ir.transport import PURE, Transport
from hccc.lang.transfer import load as transfer
from hccc.testing.grow import grow
from tests.emit import plans
from tests.marks import LONG, slow
from tests.sabotage import without_wait

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COUNT = 600
RUNS = 20  # a fault need not show every time
PROGRAM = Path(__file__).with_name("programs") / "launches.cpp"
WORLD = """
#include "{source}"
static const long long world_count = {count};
static const int world_at[{ranks}][2][2] = {{{table}}};  // input, output; out of place, in place
static const int world_domain[{ranks}] = {{{domain}}};
static const int world_places = {places}, world_window = {window}, world_late = {late};
static const int world_is_allreduce = {allreduce};
"""


def world_of(plan: Plan, source: str, late: bool) -> str:
    """Returns the text that launches.cpp includes: the kernel, and memory as callers lay it out."""
    c, rows = plan.collective, []
    for rank in range(c.n_ranks):
        shift = c.alias_offset(rank) // c.chunks_per_block * COUNT
        if not (c.input_blocks(rank) and c.output_blocks(rank)):
            shift = 0
        away = c.n_ranks * COUNT
        rows.append(f"{{{{{away}, 0}}, {{{max(shift, 0)}, {max(-shift, 0)}}}}}")
    return WORLD.format(
        source=source,
        ranks=c.n_ranks,
        table=", ".join(rows),
        count=COUNT,
        domain=", ".join(map(str, plan.memory_domain)),
        window=plan.max_window,
        places=plan.out_of_place + 2 * plan.in_place,
        late=int(late),
        allreduce=int(c.op is OpType.ALLREDUCE),
    )


def sanitized(
    plan: Plan,
    into: Path,
    late: bool = False,
    edit: Callable[[Path], None] | None = None,
    runs: int = 1,
) -> subprocess.CompletedProcess[str]:
    """Builds the plan's kernel with ThreadSanitizer and runs it, `runs` times or until it fails.
    late: transfers copy late; edit: changes the sources before."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("g++ is not installed")
    cpu = [target for target in TARGETS if target.name == "cpu"]
    directory.write(
        into / "kernels", directory.files(Catalogue.of(plan), cpu, plan_json.dumps(plan))
    )
    source = f"{plan.name}{cpu[0].suffix}"
    (into / "kernels" / "world.h").write_text(world_of(plan, source, late))
    if edit:
        edit(into / "kernels")
    flags = ["-std=c++17", "-O0", "-g1", "-fsanitize=thread", "-pthread", "-DHCCC_DTYPE=int32"]
    subprocess.run(
        [compiler, *flags, "-I.", str(PROGRAM), "-o", "program"],
        cwd=into / "kernels",
        check=True,
        capture_output=True,
        timeout=200,
    )
    while True:
        done = subprocess.run(
            ["./program"],
            cwd=into / "kernels",
            capture_output=True,
            text=True,
            timeout=200,
            env=os.environ | {"TSAN_OPTIONS": "exitcode=66"},
        )
        runs -= 1
        if done.returncode or runs <= 0:
            return done


def assert_no_race(plan: Plan, into: Path, late: bool = False) -> None:
    done = sanitized(plan, into, late)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]


def random_plan(seed: int) -> Plan:
    """Compiles a random program of a random collective in a random way."""
    dice = random.Random(seed)
    op, n = dice.choice(PROGRAMMABLE), dice.randint(2, 4)
    gpus = dice.choice([g for g in range(1, n + 1) if n % g == 0])
    c = Collective(op, n, block_count(op, n) * dice.randint(1, 2), 0)
    program = grow(
        c,
        lambda bound: dice.randint(0, bound) if bound > 0 else 0,
        gpus_per_node=gpus,
        nics_per_node=gpus,
        channels=dice.randint(1, 2),
    )
    options = Options(
        fuse=dice.choice(["none", "reduce", "full"]),
        transport=dice.choice([*PURE, Transport.AUTO]),
        network_lowering=dice.choice(["auto", *NetworkLowering]),
        allocator=dice.choice(["state", "connection"]),
        max_sms=dice.choice([None, 1, 2]),
        slots=dice.choice([1, 2, 8]),
    )
    return driver.compile_program(program, options).plan


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring_allreduce", slow("rhd_allreduce"), slow("direct_alltoall")])
def test_examples_have_no_race(name: str, tmp_path: Path) -> None:
    plan = driver.compile_text(transfer.read(EXAMPLES / f"{name}.rccl"), Options()).plan
    assert_no_race(plan, tmp_path)


@pytest.mark.quick(0)
@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 16 * LONG))])
def test_random_plans_have_no_race(seed: int, tmp_path: Path) -> None:
    assert_no_race(random_plan(seed), tmp_path, late=seed % 2 == 1)


@pytest.mark.slow
def test_a_missing_wait_is_a_race(tmp_path: Path) -> None:
    plan = driver.compile_text(
        transfer.read(EXAMPLES / "ring_allreduce.rccl"), Options(fuse="none")
    ).plan
    done = sanitized(without_wait(plan, 3), tmp_path, runs=RUNS)
    assert "data race" in done.stderr


MIXED = {"2x2": (2, 2), "2x4": (2, 4)}


def mixed_plan(shape: str, network: str, fuse: str = "auto") -> Plan:
    """Compiles a hierarchical mesh between memory domains."""
    program = plans.hierarchical_mesh(*MIXED[shape])
    plan = driver.compile_program(program, Options(network_lowering=network, fuse=fuse)).plan
    assert plan.transport is Transport.MIXED and len(set(plan.memory_domain)) == 2
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("late", [slow(False), True])
@pytest.mark.parametrize("network", ["slots", "put"])
@pytest.mark.parametrize("shape", ["2x2", slow("2x4")])
def test_mixed_plans_have_no_race(shape: str, network: str, late: bool, tmp_path: Path) -> None:
    assert_no_race(mixed_plan(shape, network), tmp_path, late)


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0, slow(5), slow(11), slow(17)])
@pytest.mark.parametrize("network", ["slots", "put"])
def test_a_missing_wait_of_a_mixed_plan_is_told(network: str, wait: int, tmp_path: Path) -> None:
    """A kernel's own data race, a proxy's late data give wrong results, or both."""
    plan = mixed_plan("2x2", network, "none")
    done = sanitized(without_wait(plan, wait), tmp_path, late=True, runs=RUNS)
    assert "data race" in done.stderr or "wrong" in done.stdout


CREDIT = "{HCCC_WAIT_CREDIT, flag, sent - HCCC_SLOTS}"
PUT, FLAGS = "    hccc_submit_puts(b, puts, m, n);\n", "    hccc_submit_all(b, p, m, n);\n"
BREAKS = {
    "a slot is filled too early": ("slots", "primitive.h", CREDIT, CREDIT.replace("- ", "- 2 * ")),
    "flags go before data": ("put", "execute.h", PUT + FLAGS, FLAGS + PUT),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_kernel_is_told(what: str, tmp_path: Path) -> None:
    network, name, old, new = BREAKS[what]

    def broken(folder: Path) -> None:
        header = folder / "hccc" / name
        text = header.read_text()
        assert text.count(old) == 1
        header.write_text(text.replace(old, new))

    done = sanitized(
        mixed_plan("2x2", network, "none"), tmp_path, late=True, edit=broken, runs=RUNS
    )
    assert "data race" in done.stderr or "wrong" in done.stdout
