"""`--accumulate`: kernels of every target and the step-wise executor sum in the same type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.base.diagnostics import UserError
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Accumulate
from hccc.ir.digest import library_digest
from hccc.ir.plan import Plan
from hccc.proofs.result import result
from hccc.runtime.abi import CallRecord
from hccc.runtime.layout import DTYPES
from hccc.runtime.request import LaunchRequest
from hccc.testing import kernels
from hccc.testing.stepwise import launch as stepwise
from tests.cli.commandline import Hccc, hccc
from tests.emit import launch, plans
from tests.marks import slow
from tests.runtime import gpu_text

__all__ = ["hccc"]
COUNT = 1003
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8e5m2", "complex64")
MESH = plans.compiled(plans.mesh_allreduce(4))


def summing(how: Accumulate) -> Plan:
    """Returns a mesh that merges the sums of a chunk, with sums of a type."""
    return replace(MESH, accumulate=how)


def drawn(dtype: str, seed: int) -> list[NDArray[Any]]:
    """Draws what no sum of four is exact for: numbers of many sizes and both signs."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(4):
        x = rng.standard_normal((2, COUNT)) * 2.0 ** rng.integers(-6, 7, (2, COUNT))
        complex_number = x[0] + 1j * x[1] if DTYPES[dtype].kind == "c" else x[0]
        made.append(complex_number.astype(DTYPES[dtype]))
    return made


def expected(how: Accumulate, dtype: str, op: str, x: list[NDArray[Any]]) -> list[NDArray[Any]]:
    return stepwise(summing(how), x, op, count=COUNT, micro_batch=512)


@pytest.mark.parametrize(
    "how", [Accumulate.FLOAT64, slow(Accumulate.SAME), slow(Accumulate.FLOAT32)]
)
@pytest.mark.parametrize("dtype", ["bfloat16", *map(slow, FLOATS)])
def test_cpu(dtype: str, how: Accumulate) -> None:
    x = drawn(dtype, 1)
    request = LaunchRequest(COUNT, dtype, micro_batch=512)
    got = kernels.launch(summing(how), x, request)
    want = expected(how, dtype, "sum", x)
    assert [a.tobytes() for a in got] == [b.tobytes() for b in want]


@pytest.mark.slow
@pytest.mark.parametrize("target", [t for t in TARGETS if t.stream], ids=lambda t: t.name)
@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_texts_of_gpus(dtype: str, op: str, target: Any, tmp_path: Path) -> None:
    for how in Accumulate:
        plan, x = summing(how), drawn(dtype, 2)
        library = gpu_text.built(plan, target, dtype, op, tmp_path / how)
        world = launch.PlanRanks(library, plan, target.name)
        buffers = [(a.copy(), np.empty_like(a)) for a in x]
        call = CallRecord.of(count=COUNT, timeout_s=20, micro_batch_bytes=512)
        assert world.launch(buffers, call, dtype, op) == 0
        want = expected(how, dtype, op, x)
        assert [b.tobytes() for _, b in buffers] == [b.tobytes() for b in want]


@pytest.mark.parametrize(
    ("dtype", "values", "want"),
    [
        ("bfloat16", (2.0**30, 1, -(2.0**30), 0), (0, 1, 0)),  # 1 is lost in float32,
        ("bfloat16", (2.0**10, 1, -(2.0**10), 0), (1, 1, 0)),  # and here in bfloat16;
        ("float32", (2.0**30, 1, -(2.0**30), 0), (0, 1, 0)),
        # and above the middle of two float16, but not after it was rounded to float32.
        ("float16", (1, 2.0**-11, 2.0**-24, 0), (1, 1 + 2.0**-10, 1)),
    ],
)
def test_results(dtype: str, values: Sequence[float], want: Sequence[float]) -> None:
    """In float32, in float64, and rounded each time."""
    x = [np.array([value]).astype(DTYPES[dtype]) for value in values]
    got = [stepwise(summing(how), x, count=1, micro_batch=16)[0] for how in Accumulate]
    assert [float(one[0]) for one in got] == list(want)


def test_each_has_its_statement() -> None:
    """Another digest, and another text in kernels, plan files and proofs."""
    each = [summing(how) for how in Accumulate]
    assert len({library_digest(Catalogue.of(plan)) for plan in each}) == 3
    for plan in each:
        assert plan_json.loads(plan_json.dumps(plan)).accumulate is plan.accumulate
        usual = plan.accumulate is Accumulate.FLOAT32
        assert (plan.accumulate.sums in result(plan).claim) is not usual
        for text in (source.cpu(plan), source.cuda(plan), source.hip(plan)):
            assert f"// Sums of {plan.accumulate.sums}." in text
            assert (f"#define HCCC_ACCUMULATE {plan.accumulate.bits}\n" in text) is not usual


def test_other_names_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"^error\[E410\]: accumulate 'float8' is not one of float32, "
    ):
        Options(accumulate="float8")
    assert Options(accumulate=Accumulate.SAME).as_text()["accumulate"] == "same"
    assert "accumulate" not in Options().as_text()
    text = plan_json.dumps(MESH).replace(Accumulate.FLOAT32.stated, "float16")
    with pytest.raises(UserError, match=r"E310.*accumulate: 'float16', but this hccc keeps"):
        plan_json.loads(text)


@pytest.mark.slow
def test_a_run_says_so(hccc: Hccc, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_json.dumps(summing(Accumulate.FLOAT64)))
    code, out, err = hccc("run", tmp_path / "plan.json", "-d", "half", "-b", "4K", "-e", "4K")
    assert code == 0, err
    assert f"# {Accumulate.FLOAT64.sums}" in out and "Out of bounds values : 0 OK" in out
