"""A changed token of a text is caught: only mutants without effect survive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver.options import Options
from hccc.emit.targets import TARGETS, Target
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.validate import unit
from hccc.validate.differences import difference
from hccc.validate.execute import execute
from hccc.validate.tables import OF_PRIMITIVES, UNORDERED, Rows, expected
from tests.marks import LONG, slow
from tests.validate.conftest import CPU, CUDA, HIP, TRANSPORTS, emitted
from tests.validate.mutants import TextMutant, mutants

EXAMPLES = Path(__file__).parents[2] / "examples"
DIRECT, STAGED, AUTO = TRANSPORTS
WORKERS = 2
# What no plan says: whether GPU bodies are inlined.
FREE = ("HCCC_INLINE",)


def judged(plan: Plan, target: Target, part: int, most: int) -> Counter[str]:
    """Returns how many mutants of one of `unit.names` are refused, change nothing, or survive.

    The C header is of all targets, so what it says is told by one of them.
    """
    wanted, targets = expected(plan), TARGETS if part == 1 else (target,)
    files = emitted(plan, *targets)
    name = unit.names(plan, target)[part]
    if not part:
        files = {name: files[name]}
    original = execute(files, plan, target, wanted)
    assert difference(original, wanted, plan) is None
    chosen = list(mutants(files[name].decode()))
    random.Random(0).shuffle(chosen)
    lines = files[name].decode().splitlines()

    def judge(mutant: TextMutant) -> str:
        edited, found = {**files, name: mutant.text.encode()}, original
        for one in targets:
            try:
                found = execute(edited, plan, one, wanted)
            except UserError as error:
                return error.problem.code
            if difference(found, wanted, plan) is not None:
                return "E438"
        if same(found.rows, original.rows):
            return "equivalent"
        if same(sorted_lists(found.rows), sorted_lists(original.rows)):
            return "reordered"
        line = lines[mutant.line - 1]
        return "free" if any(word in line for word in FREE) else f"{mutant.line}: {mutant.what}"

    with ThreadPoolExecutor(WORKERS) as pool:
        return Counter(pool.map(judge, chosen[:most]))


def same(found: Rows, original: Rows) -> bool:
    """Tells whether every table has the same rows in the same order."""
    return found.keys() == original.keys() and all(
        np.array_equal(rows, original[name]) for name, rows in found.items()
    )


def sorted_lists(rows: Rows) -> Rows:
    """Sorts the lists whose order changes nothing: each primitive's waits, destinations and posts,
    and each rank's neighbours."""
    heads, lists = rows["primitives"], {"neighbours": rows["neighbours"][:, 0]}
    for name in UNORDERED:
        lists[name] = np.repeat(np.arange(len(heads)), heads[:, OF_PRIMITIVES[name]])
    order = {name: np.lexsort((*rows[name].T, owner)) for name, owner in lists.items()}
    return {**rows, **{name: rows[name][by] for name, by in order.items()}}


def texts() -> Iterator[Any]:
    """Yields (program, transport, target, which file, most mutants)."""
    yield "ring_allreduce.rccl", DIRECT, CUDA, 0, 20
    yield slow("binomial_broadcast.rccl", STAGED, CPU, 0, 20)
    yield "ring_allreduce.rccl", DIRECT, HIP, 1, 10
    yield "ring_allreduce.rccl", DIRECT, CPU, 2, 10
    for name in ("ring_allreduce", "binomial_broadcast", "direct_alltoall", "rhd_allreduce"):
        for transport in (DIRECT, STAGED):
            yield slow(f"{name}.rccl", transport, CUDA, 0, 20 * LONG)
    for target in (CPU, CUDA, HIP):
        yield slow("hm_allreduce.rccl", DIRECT, target, 0, 20 * LONG)
    yield slow("hm_allreduce.rccl", AUTO, CUDA, 0, 20 * LONG)
    yield slow("hm_allreduce.rccl", STAGED, CUDA, 0, 20 * LONG)
    yield slow("msccl/allreduce_ring_n8_msccl.xml", STAGED, CUDA, 0, 20 * LONG)
    for part in (1, 2):
        yield slow("direct_scatter.rccl", DIRECT, CUDA, part, 20 * LONG)
        yield slow("ring_allreduce.rccl", DIRECT, CPU, part, 20 * LONG)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "transport", "target", "part", "most"), list(texts()))
def test_no_mutant_survives(
    name: str, transport: Transport, target: Target, part: int, most: int
) -> None:
    plan = api.compile(EXAMPLES / name, Options(transport=transport, prove=False)).plan
    found = judged(plan, target, part, most)
    assert set(found) <= {"E438", "E439", "equivalent", "reordered", "free"}, found
    assert found["E438"] > 0 or part == 1
    assert found["equivalent"] <= found.total() // 20 + 1, found
    print(name, transport.name.lower(), target.name, part, dict(found))  # for the curious: -s


OF_PACKETS = [("direct_allreduce", CPU), ("direct_allreduce", CUDA), ("direct_scatter", CPU)]
OF_PACKETS_SLOW = [("direct_allreduce", HIP)] + [("ring_allgather", t) for t in (CPU, CUDA, HIP)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [*OF_PACKETS, *(slow(*case) for case in OF_PACKETS_SLOW)],
    ids=lambda value: getattr(value, "name", value),
)
def test_no_mutant_of_packets_survives(name: str, target: Target) -> None:
    options = Options(protocol="ll", prove=False)
    plan = api.compile(EXAMPLES / f"{name}.rccl", options).plan
    found = judged(plan, target, 0, 20 * LONG)
    assert set(found) <= {"E438", "E439", "equivalent", "reordered", "free"}, found
    assert found["E438"] > 0


def test_mutants_are_many_and_differ() -> None:
    text = "  hccc_prim<HCCC_COPY>(b, i + 1, 0, hccc_waits(i), tb);  // i + 1\n"
    found = [mutant.text for mutant in mutants(text)]
    assert len(found) == len(set(found)) > 10 and text not in found
    assert all(one.endswith("// i + 1\n") or not one for one in found)
    assert "  hccc_prim<HCCC_COPY>(b, i - 1, 0, hccc_waits(i), tb);  // i + 1\n" in found
