"""Multicast addresses on the machine for PTX: what the switch does, and kernels that use it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import CUDA
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.runtime.build import Variant
from hccc.runtime.cuda import KERNEL
from hccc.runtime.layout import shape_of
from hccc.runtime.machines.arrays import Arrays
from hccc.runtime.machines.kernel import MachineFinding, MachineLaunch, Multicast
from hccc.runtime.machines.launcher import MULTICASTS
from hccc.runtime.machines.ptx.launcher import PtxLauncher
from hccc.runtime.machines.ptx.machine import PtxKernel
from hccc.runtime.machines.ptx.mutants import mutants
from hccc.runtime.request import LaunchRequest
from hccc.testing.clusters import cluster
from tests.cli.commandline import Hccc
from tests.cli.commandline import hccc as hccc  # a fixture
from tests.emit import plans
from tests.marks import slow
from tests.runtime.machines.ptx.test_machine import HEAD

EXAMPLES = Path(__file__).parents[4] / "examples"
DGX = EXAMPLES / "clusters" / "dgx-h100.cluster"
RANKS = 4
SEEDS = range(1, 9)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def executed(
    body: str, values: Any, seed: int = 1, begin: int = MULTICASTS
) -> tuple[MachineFinding | None, Any, list[Any]]:
    """Runs one thread with a multicast address of the values' rows in %rd1.

    Returns the fault, the words at %rd2, and the rows as they are then.
    """
    memory = Arrays()
    rows = [memory.asarray(row) for row in values]
    out = memory.zeros(4, values.dtype)
    many = Multicast(begin, rows[0].nbytes, tuple(int(row.data.ptr) for row in rows))
    kernel = PtxKernel(HEAD + body + "\n  ret;\n}\n", "k")
    params = np.array([MULTICASTS, out.data.ptr, 0], "u8").tobytes()
    found = kernel.run([MachineLaunch(params, 1, 1, 1, 0)], memory.regions(), seed, [many])
    return found, np.array(out), [np.array(row) for row in rows]


def reduced(what: str, values: Any, seed: int = 1) -> Any:
    """Returns four words that a load by a multicast address gives."""
    registers = "{%r1, %r2, %r3, %r4}"
    load = f"multimem.ld_reduce.relaxed.sys.global.{what} {registers}, [%rd1];"
    found, out, _ = executed(f"{load}\n  st.global.v4.b32 [%rd2], {registers};", values, seed)
    assert found is None
    return out


def test_a_load_adds_all_ranks_in_an_order_of_the_seed() -> None:
    whole = np.random.default_rng(1).integers(-1000, 1000, (8, 4)).astype("f4")
    assert (reduced("add.v4.f32", whole) == whole.sum(axis=0)).all()
    rough = np.random.default_rng(1).uniform(-1, 1, (8, 4)).astype("f4")
    found = {reduced("add.v4.f32", rough, seed).tobytes() for seed in SEEDS}
    assert len(found) > 1, "the order is another for each seed"
    for one in found:
        assert np.allclose(np.frombuffer(one, "f4"), rough.astype("f8").sum(axis=0), atol=1e-5)


def test_halves_are_added_in_float() -> None:
    """2048 + 1 is 2048 in float16; four ones are added to it all the same."""
    values = np.ones((5, 8), "f2")
    values[0] = 2048
    assert (reduced("add.acc::f32.v4.f16x2", values.view("u4")).view("f2") == 2052).all()


def test_a_store_reaches_all_ranks() -> None:
    body = "mov.b32 %r1, 7; mov.b32 %r2, 8;\n"
    body += "multimem.st.relaxed.sys.global.v4.f32 [%rd1], {%r1, %r2, %r1, %r2};"
    found, _, rows = executed(body, np.zeros((3, 4), "u4"))
    assert found is None and all(row.tolist() == [7, 8, 7, 8] for row in rows)
    found, _, rows = executed(
        "mov.b32 %r1, 5; multimem.red.relaxed.sys.global.add.u32 [%rd1+4], %r1;",
        np.arange(12, dtype="u4").reshape(3, 4),
    )
    assert found is None and [row[1] for row in rows] == [6, 10, 14]


def test_a_multicast_address_is_no_memory() -> None:
    zeros = np.zeros((2, 4), "u4")
    for body, begin in (
        ("ld.global.u32 %r1, [%rd1];", MULTICASTS),
        ("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd2];", MULTICASTS),
        ("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd1+16];", MULTICASTS),
    ):
        found, *_ = executed(body, zeros, begin=begin)
        assert found and "nobody's" in found.what, body
    found, *_ = executed("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd1+2];", zeros)
    assert found and "does not divide" in found.what


class Switched:
    """An AllReduce by the switch, whose text can be replaced."""

    def __init__(self, place: Path) -> None:
        switch = cluster(f"define node1 = {RANKS}\ndefine device = H100")
        chosen = Options(transport=Transport.MULTICAST, bits="any", tune="off")
        program = plans.mesh_allreduce(RANKS, channels=2)
        plan: Plan = replace(driver.compile_program(program, chosen, switch).plan, warps=2)
        directory.write(place, directory.files(Catalogue.of(plan), [CUDA], plan_json.dumps(plan)))
        self.plan, self.source = plan, place / f"{plan.name}.cu"
        self.text = self._launcher().text(self.source.resolve(), Variant("float32"))

    def _launcher(self) -> PtxLauncher:
        return PtxLauncher(self.source, shape_of(self.plan), self.plan.collective, self.plan.warps)

    def fault(self, text: str, seed: int, count: int = 70, shift: int = 0) -> str:
        """Queues three calls of whole numbers; returns what was wrong, or nothing. shift: bytes by
        which rank 1 has its buffers elsewhere than the others."""
        built = self._launcher()
        built.seed = seed
        self.kernel = built.kernels[built.source, Variant("float32")] = PtxKernel(text, KERNEL)
        calls, wanted = [], []
        for k in range(3):
            values = np.random.default_rng(k).integers(-99, 99, (RANKS, count)).astype("f4")
            both = [self._buffers(built, row, shift * (r == 1)) for r, row in enumerate(values)]
            calls.append(([i for i, _ in both], [o for _, o in both]))
            wanted.append(values.sum(axis=0))
        try:
            request = LaunchRequest(count, "float32", timeout=0, deadline=5.0)
            built.launch_all(calls, request)
        except UserError as error:
            return error.problem.message
        finally:
            self.executed = self.kernel.executed_lines()
        right = all(
            (np.array(o) == want).all()
            for (_, out), want in zip(calls, wanted, strict=True)
            for o in out
        )
        return "" if right else "wrong data"

    @staticmethod
    def _buffers(built: PtxLauncher, row: Any, shift: int) -> tuple[Any, Any]:
        made = [built.arrays.zeros(len(row) + 64, np.float32) for _ in range(2)]
        given, taken = (one[shift // 4 : shift // 4 + len(row)] for one in made)
        given[...] = row
        return given, taken

    def lines_of(self, opcode: str) -> set[int]:
        """Returns the lines of the text that begin with an opcode."""
        lines = enumerate(self.text.splitlines(), 1)
        return {n for n, line in lines if line.strip().startswith(opcode)}


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> Switched:
    return Switched(tmp_path_factory.mktemp("switched"))


@needs_nvcc
@pytest.mark.slow
def test_kernels_add_and_store_by_the_switch(switched: Switched) -> None:
    """The last elements of a part, fewer than 16 bytes, are loaded and stored one by one."""
    for count, seed in ((70, 1), (64, 2), (3, 3), (0, 4), (331, 5)):
        assert switched.fault(switched.text, seed, count) == ""
    done = switched.executed & switched.lines_of("multimem.ld_reduce")
    assert done and switched.executed & switched.lines_of("multimem.st")


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("shift", [4, 16])
def test_buffers_at_unlike_places_go_by_loads_and_stores(switched: Switched, shift: int) -> None:
    assert switched.fault(switched.text, 1, shift=shift) == ""
    assert not switched.executed & switched.lines_of("multimem")


@needs_nvcc
@pytest.mark.slow
def test_what_orders_a_switch_is_missed(switched: Switched) -> None:
    """Nobody may load before all have shown their buffers, nor leave before all have stored."""
    executed_lines = set[int]()
    for seed in SEEDS:
        assert switched.fault(switched.text, seed) == ""
        executed_lines |= switched.executed
    told = set[str]()
    for mutant in mutants(switched.text):
        if mutant.line in executed_lines and any(
            switched.fault(mutant.text, seed) for seed in SEEDS
        ):
            told.add(".".join(mutant.was.split()[0].split(".")[:2]))
    assert {"st.release", "ld.acquire", "bar.sync"} <= told


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "options"),
    [
        slow("direct_allreduce", ["-d", "float32,bfloat16", "-o", "sum,avg,max"]),
        slow("ring_reducescatter", ["-d", "float16,int64"]),
        slow("direct_allgather", ["-d", "float8e4m3"]),
        slow("binomial_broadcast", ["-d", "float32"]),
        slow("binomial_reduce", ["-d", "float64", "-o", "sum,prod"]),
    ],
)
def test_run(hccc: Hccc, name: str, options: list[str]) -> None:
    """Two launches in place and two out of place; rough sums differ from the CPU's by no more than
    their order explains."""
    small = ["--tune", "off", "--warps", "1", "-n", "1", "-w", "0", "-b", "2100", "-e", "2100"]
    how = ["--cluster", DGX, "--transport", "multicast", "--bits", "any", "--device", "ptx"]
    code, out, err = hccc("run", EXAMPLES / f"{name}.rccl", *how, *small, *options)
    assert code == 0, out + err
    assert "on ptx" in out
