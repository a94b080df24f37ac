"""Emitted CUDA kernels on the machine for PTX: right for each seed, and none of what orders them
is superfluous. Needs nvcc, which takes seconds for a kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.emit import directory
from hccc.emit.targets import CUDA
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.build import Variant
from hccc.runtime.cuda import KERNEL
from hccc.runtime.layout import shape_of
from hccc.runtime.ptx.launcher import PtxLauncher
from hccc.runtime.ptx.machine import Kernel
from hccc.runtime.ptx.mutants import mutants
from hccc.runtime.request import LaunchRequest
from tests.emit import plans

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

COUNT = 50
SEEDS = 6


class Harness:
    """An AllReduce of a few ranks, whose text can be replaced."""

    def __init__(self, plan: Plan, place: Path) -> None:
        directory.write(place, directory.files(Catalogue.of(plan), [CUDA], plan_json.dumps(plan)))
        source = place / f"{plan.name}.cu"
        self.plan, self.source = plan, source
        self.text = self._launcher().text(source.resolve(), Variant("float32"))

    def _launcher(self) -> PtxLauncher:
        shape = shape_of(self.plan)
        return PtxLauncher(self.source, shape, self.plan.collective, self.plan.warps)

    def fault(self, text: str, seed: int) -> str:
        """Queues three calls with a text; returns what was wrong, or nothing."""
        built = self._launcher()
        built.seed = seed
        kernel = Kernel(text, KERNEL)
        built.kernels[built.source, Variant("float32")] = kernel
        n, arrays = self.plan.n_ranks, built.arrays
        values = [np.arange(COUNT, dtype="f4") + 100 * k for k in range(3 * n)]
        inputs = [arrays.asarray(v) for v in values]
        outputs = [arrays.zeros(COUNT, np.float32) for _ in range(n)]
        calls = [(inputs[k * n : k * n + n], outputs) for k in range(3)]
        request = LaunchRequest(COUNT, "float32", timeout=5.0, join_timeout=5.0)
        try:
            built.launch_all(calls, request)
        except UserError as error:
            return error.problem.message
        finally:
            self.executed = kernel.executed_lines()
        wanted = sum(values[2 * n :])
        return "" if all((o == wanted).all() for o in outputs) else "wrong data"


@pytest.mark.parametrize("ring", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_all_that_orders_is_missed(tmp_path: Path, ring: bool) -> None:
    program = (plans.ring_allreduce if ring else plans.mesh_allreduce)(3, channels=2)
    harness = Harness(plans.compiled(program, warps=1), tmp_path)
    executed = set[int]()
    for seed in range(SEEDS):
        assert harness.fault(harness.text, seed) == ""
        executed |= harness.executed
    survived = [
        f"{mutant.line}: {mutant.was}"
        for mutant in mutants(harness.text)
        if mutant.line in executed and not any(harness.fault(mutant.text, s) for s in range(SEEDS))
    ]
    assert not survived
