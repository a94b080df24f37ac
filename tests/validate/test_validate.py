"""Emitted kernels do their plan's work: every example and option, and random programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver.options import Options
from hccc.emit.targets import CPU, TARGETS, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Allocator, Fusion
from hccc.ir.plan import Plan
from hccc.ir.transport import PURE, Transport
from hccc.testing import plans
from hccc.validate.validate import validate
from tests.emit import plans as made
from tests.health_checks import EVERY_CHECK
from tests.marks import LONG, slow, some
from tests.validate.conftest import CUDA, TRANSPORTS, emitted

EXAMPLES = Path(__file__).parents[2] / "examples"
ALGORITHMS = sorted(EXAMPLES.glob("*.rccl"))
SCHEDULES = sorted(EXAMPLES.glob("msccl/*.xml"))
CHOICES = [  # each option against the others' defaults, and the two that matter most together
    *(Options(transport=t, fuse=f) for t, f in product(TRANSPORTS, Fusion)),
    *(Options(allocator=a, transport=t) for a, t in product(Allocator, TRANSPORTS)),
    *(Options(scheduler=s) for s in ("hpds", "list", "round-robin")),
    Options(max_sms=1),
    Options(transport=Transport.STAGED, slots=8),
]


def validated(plan: Plan, targets: Sequence[Target] = TARGETS) -> None:
    """Checks texts of a plan against it, and their counts against its tables."""
    found = validate(emitted(plan, *targets), Catalogue.of(plan), targets)
    assert found.targets == tuple(target.name for target in targets)
    assert found.primitives == len(plan)
    assert found.operands == len(plan.src.rank) + len(plan.dst.rank)
    assert (found.waits, found.posts) == (len(plan.waits.index), len(plan.posts.rank))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [slow(p) if k % 2 else p for k, p in enumerate(ALGORITHMS)], ids=lambda p: p.stem
)
@pytest.mark.parametrize(
    "transport", [*map(slow, PURE), Transport.AUTO], ids=lambda t: t.name.lower()
)
def test_every_example(path: Path, transport: Transport) -> None:
    """As it is compiled for users the texts of all targets; of each pure transport the text of one,
    in turn."""
    turn = (ALGORITHMS.index(path) + PURE.index(transport)) % 3 if transport in PURE else None
    targets = TARGETS if turn is None else (TARGETS[turn],)
    validated(api.compile(path, Options(transport=transport, prove=False)).plan, targets)


LL = (
    "direct_allreduce",
    slow("ring_allreduce"),
    slow("rhd_allreduce"),
    slow("direct_alltoall"),
    "direct_gather",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", LL)
@pytest.mark.parametrize("options", [Options(), slow(Options(fuse="none", allocator="connection"))])
def test_packets(name: str, options: Options) -> None:
    options = replace(options, protocol="ll", channels=2, prove=False)
    plan = api.compile(EXAMPLES / f"{name}.rccl", options).plan
    # Kernels of GPUs do not greet.
    validated(plan, [CPU] if plan.greets else TARGETS)


@pytest.mark.quick(2)
@pytest.mark.parametrize("path", SCHEDULES, ids=lambda p: p.stem)
def test_every_imported_schedule(path: Path) -> None:
    """Their plans serve calls in place alone, and bound the window."""
    validated(api.compile(path, Options(prove=False)).plan)


@pytest.mark.parametrize(
    "k", [*map(slow, range(len(ALGORITHMS)))], ids=lambda k: ALGORITHMS[k].stem
)
def test_every_option(k: int) -> None:
    """A fifth of all options with each algorithm, and each option with a fifth of them. Of each
    plan the text of one target, and of the plans of an option those of all targets. Nothing is
    tuned: that chooses among these options."""
    path, target = ALGORITHMS[k], TARGETS[k // 5 % len(TARGETS)]
    for options in some(CHOICES[k % 5 :], 5):
        plain = replace(options, tune="off", prove=False)
        validated(api.compile(path, plain).plan, [target])


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_channel(transport: Transport) -> None:
    text = (EXAMPLES / "ring_allreduce.rccl").read_text()
    several = text.replace("nChannels=1", "nChannels=3")
    assert several != text
    plan = api.compile(several, Options(transport=transport, tune="off")).plan
    assert plan.channels == 3
    validated(plan)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_random_programs(part: int) -> None:
    """Of each plan the text of one target: their functions are the same."""

    @seed(part)
    @settings(max_examples=30 * LONG, deadline=None, suppress_health_check=EVERY_CHECK)
    @given(plans(), st.sampled_from(TARGETS))
    def body(plan: Plan, target: Target) -> None:
        validate(emitted(plan, target), Catalogue.of(plan), [target])

    body()


def test_a_text_alone() -> None:
    """The kernels of a target that the header does not declare are validated too."""
    plan = made.compiled(made.ring_allreduce(4))
    files = emitted(plan, CUDA)
    name = f"{plan.name}.cu"
    assert validate({name: files[name]}, Catalogue.of(plan), [CUDA]).primitives == len(plan)


@pytest.mark.slow
def test_nothing_of_another_plan() -> None:
    """Every pair of different plans of one name is told apart."""
    several = [
        made.compiled(made.ring_allreduce(n, channels=c), transport=t, level=f)
        for n, c, t, f in product((3, 4), (1, 2), TRANSPORTS[:2], ("none", "full"))
    ]
    for k, plan in enumerate(several):
        other = emitted(several[k - 1])
        if other[f"{plan.name}.cu"] == emitted(plan)[f"{plan.name}.cu"]:
            continue  # nothing to fuse
        with pytest.raises(UserError) as error:
            validate(other, Catalogue.of(plan), [CUDA])
        assert error.value.problem.code == "E438"
