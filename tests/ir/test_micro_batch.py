"""The micro-batch of calls that name none."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.micro_batch import GRAIN, LARGEST, SMALLEST, default_micro_batch
from hccc.ir.topology import uniform
from hccc.lang.transfer import load as transfer
from hccc.runtime.layout import shape_of
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@given(st.integers(0, 1 << 50))
def test_it_is_the_power_of_two_next_to_the_root(part: int) -> None:
    found = default_micro_batch(part)
    assert found.bit_count() == 1 and SMALLEST <= found <= LARGEST
    wanted = math.sqrt(part * GRAIN)
    assert found == SMALLEST or 0.706 * found <= wanted
    assert found == LARGEST or wanted <= 1.415 * found


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_longer_parts_are_not_cut_finer(one: int, other: int) -> None:
    """Scratch memory for a large call is enough for any smaller one."""
    assert default_micro_batch(min(one, other)) <= default_micro_batch(max(one, other))


@pytest.mark.parametrize("kib", [0, 1, 64, 100, 4096, 65536])
def test_simulated_calls_are_cut_as_executed_ones(kib: int) -> None:
    plan = compile_text(transfer.read(EXAMPLES / "hm_allreduce.rccl"), Options()).plan
    run = simulate(prepare(plan, uniform(32, 8, 8)), Request(kib << 10))
    cut = shape_of(plan).sizes(kib << 10, 1)
    assert run.batches == max(1, cut.batches)
    assert run.payload == min(cut.micro, (kib << 10) / 128)
