"""The simulator against a plain one, and against the order that plans are executed in."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hccc.base.diagnostics import Source, UserError
from hccc.driver.assumed import common_cluster
from hccc.driver.compilation import compile_program, compile_text
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.ir.topology import Device, Rate, uniform
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.sim.costs import Costs
from hccc.sim.critical import breakdown, critical_path
from hccc.sim.machine import Machine, prepare
from hccc.sim.simulate import Request, Run, same_in_place, simulate
from hccc.testing import (
    collectives,
    correct_programs,
    exact_inputs,
    expected,
    options,
    replay,
    text,
    topologies,
)
from tests.marks import LONG
from tests.sim.plain import times

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.rccl"))
COSTS = st.builds(
    Costs,
    step=st.sampled_from([0.0, 0.5]),
    interpret=st.sampled_from([0.0, 0.25]),
    efficiency=st.sampled_from([1.0, 0.5]),
    latency=st.sampled_from([0.0, 1.0]),
)
SLOW_TO_GROW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def law(examples: int) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Makes a slow test over so many random programs on random clusters."""

    def decorate(body: Callable[..., None]) -> Callable[[], None]:
        @pytest.mark.slow
        def test() -> None:
            at_length = settings(
                max_examples=examples * LONG, deadline=None, suppress_health_check=SLOW_TO_GROW
            )
            at_length(given(st.data())(body))()

        test.__doc__ = body.__doc__
        return test

    return decorate


def drawn(data: st.DataObject) -> tuple[Machine, Request]:
    """Draws a plan, a cluster of as many GPUs (the plan's or another), and a call."""
    collective = data.draw(collectives(max_ranks=5, max_transfers=30, uneven=None))
    program = data.draw(correct_programs(collective, max_transfers=30))
    note(text(program))
    topology = data.draw(topologies().filter(lambda t: t.n_ranks == collective.n_ranks))
    cluster = topology if data.draw(st.booleans()) else None
    how = data.draw(options(prove=False))
    if data.draw(st.booleans()):
        how = replace(how, protocol="ll", transport=Transport.DIRECT)
    try:
        plan = compile_program(program, how, cluster).plan
        machine = prepare(plan, topology)
    except UserError as error:  # E302: a window that queues cannot carry; E131: no route
        assert error.problem.code in ("E302", "E131", "E323")  # E323: packets, blocks of any length
        assume(False)
    event(f"{plan.protocol}, {plan.transport.name.lower()}, carried: {len(machine.transfers) > 0}")
    size = data.draw(st.sampled_from([1 << 10, 1 << 20, 3_000_000]))
    micro = data.draw(st.sampled_from([1 << 12, 1 << 17, 1 << 30]))
    lengths = None
    if collective.uneven:
        least, most = st.sampled_from([0, 1]), size // collective.most_blocks()
        length = st.one_of(least, st.integers(0, most), st.just(most))
        n = collective.blocks
        lengths = tuple(data.draw(st.lists(length, min_size=n, max_size=n)))
    request = Request(
        min(size, plan.max_bytes or size),
        micro_batch=max(micro, size // 7),
        window=data.draw(st.sampled_from([0, 1, 2])),
        in_place=data.draw(st.booleans()),
        costs=data.draw(COSTS),
        lengths=lengths,
    )
    return machine, request


def parts_of(plan: Plan, block: int, lengths: tuple[int, ...] | None) -> list[float]:
    """Returns the mean bytes of the channels' parts of each primitive's chunk."""
    c, channels = plan.collective, plan.channels
    most, found = block / (c.chunks_per_block * channels), []
    for chunk in plan.chunk.tolist():
        length = block if lengths is None else lengths[chunk // c.chunks_per_block]
        first = chunk % c.chunks_per_block * channels
        each = [length - (first + k) * most for k in range(channels)]
        found.append(sum(min(most, max(0.0, left)) for left in each) / channels)
    return found


@law(40)
def test_times_are_those_of_the_plain_simulator(data: st.DataObject) -> None:
    machine, request = drawn(data)
    try:
        got = simulate(machine, request)
    except UserError as error:
        assert error.problem.code in ("E426", "E460", "E462")
        return
    block = request.size // machine.plan.collective.most_blocks()
    want = times(
        machine.plan,
        machine.topology,
        got.batches,
        got.payload,
        parts_of(machine.plan, block, request.lengths),
        got.window,
        got.request.costs,
        request.in_place,
        block,
    )
    ends = np.array([want[divmod(i, got.batches)] for i in range(len(got.end))])
    np.testing.assert_allclose(got.end, ends, rtol=1e-6, atol=1e-5)


@law(40)
def test_a_run_keeps_the_order_of_the_plan_and_its_parts_add_up(data: st.DataObject) -> None:
    """Executed in the order of the simulated ends, a plan gives the collective's result."""
    machine, request = drawn(data)
    try:
        got = simulate(machine, request)
    except UserError:
        return
    assert (got.begin <= got.ready).all() and (got.ready <= got.end).all()
    ends = got.end.reshape(-1, got.batches)
    c = machine.plan.collective
    x = exact_inputs(c, np.int64, (got.batches,))
    out = replay(machine.plan, x, ends, in_place=request.in_place, window=got.window)
    want = expected(c, x, "sum", np.int64)
    assert all(np.array_equal(a, b) for a, b in zip(out, want, strict=True))
    path = critical_path(got)
    assert got.end[path[-1]] == got.end.max() or got.finish > got.end.max()
    parts = breakdown(got, path)
    assert sum(parts.values()) == pytest.approx(got.finish, rel=1e-6, abs=1e-6)
    assert (np.diff(got.end[path]) >= -1e-6).all()


@law(40)
def test_proxies_carry_everything_once_and_in_order(data: st.DataObject) -> None:
    """Every transfer of every micro-batch, pair by pair; every byte crosses its pair's links."""
    machine, request = drawn(data)
    try:
        got = simulate(machine, request)
    except UserError:
        return
    items, carried = got.carriage, machine.transfers
    number = items["transfer"].astype(np.int64) * got.batches + items["batch"]
    assert np.array_equal(np.sort(number), np.arange(len(carried) * got.batches))
    done = got.end[carried.owner[items["transfer"]] * got.batches + items["batch"]]
    assert np.allclose(items["handed"], done)
    pair = carried.pair[items["transfer"]]
    for c in range(len(carried.src)):
        mine = items[pair == c]
        for name in ("handed", "begin", "end", "arrival"):
            assert (np.diff(mine[name]) >= 0).all()
        assert (mine["begin"][1:] >= mine["end"][:-1] - 1e-9).all()
        there = mine["end"] + carried.alpha[c] * request.costs.latency
        # What is due within 1e-9 of the clock arrives with the event before it.
        assert np.allclose(mine["arrival"], there, rtol=2e-9, atol=1e-6)
    np.testing.assert_allclose(got.carried, _bytes(got), rtol=1e-6)


def _bytes(run: Run) -> NDArray[np.float64]:
    """Returns the bytes over every resource, moved by thread blocks or by proxies."""
    machine, carried, moves = run.machine, run.machine.transfers, run.moves
    times = np.zeros(len(machine.capacity))
    works = np.where(moves & (machine.move > 0), run.parts, 0.0)
    np.add.at(times, machine.uses.index, machine.weight * works[machine.uses.owner()])
    far = np.flatnonzero(carried.carries & moves[carried.owner])
    uses = carried.uses.take(carried.pair[far])
    np.add.at(
        times, uses.index, machine.plan.channels * run.parts[carried.owner[far]][uses.owner()]
    )
    return times / run.request.costs.efficiency


def _machine(n: int = 4) -> Machine:
    source = (
        f"ResCCLAlgo(nRanks={n}, AlgoName='a', OpType='Allgather', GPUPerNode={n}, NICPerNode={n}):"
        "\n    for r in range(nRanks):\n        for d in range(1, nRanks):\n"
        "            transfer(r, (r + d) % nRanks, 0, r, recv)\n"
    )
    plan = compile_text(Source("a", source), Options()).plan
    return prepare(plan, uniform(n, n, n, link=Rate(10.0, 1, 2.0), device=Device(block=1e6)))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (Request(1 << 40, micro_batch=16), "E461"),
        (Request(1, costs=Costs()), None),
        (Request(1, lengths=(1, 1, 1, 1)), "E415"),
    ],
)
def test_what_cannot_be_simulated(request_: Request, code: str | None) -> None:
    if code is None:
        assert simulate(_machine(), request_).time == pytest.approx(2.0, abs=0.01)
        return
    with pytest.raises(UserError) as caught:
        simulate(_machine(), request_)
    assert caught.value.problem.code == code


def test_other_numbers_of_ranks_are_refused() -> None:
    plan = _machine().plan
    with pytest.raises(UserError, match="4 ranks, the cluster 8 GPUs"):
        prepare(plan, uniform(8, 8, 8))


def test_impossible_costs_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [{"step": -1.0}, {"efficiency": 0.0}, {"efficiency": 2.0}]
    for wrong in wrongs:
        with pytest.raises(UserError):
            Costs(**wrong)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_calls_in_place_are_those_out_of_place_where_they_are_said_to_be(path: Path) -> None:
    """To the bit. Of the rest some take another time."""
    known = compile_text(transfer.read(path), Options(tune="off", prove=False), common_cluster)
    assert known.topology is not None
    alike, machine = same_in_place(known.plan, known.topology), prepare(known.plan, known.topology)
    if known.plan.modes != (False, True):
        return
    apart = 0
    for size, window in itertools.product((1 << 10, 1 << 20, 1 << 26), (0, 1)):
        out, inside = (simulate(machine, Request(size, 0, window, mode)) for mode in (False, True))
        same = all(
            np.array_equal(getattr(out, name), getattr(inside, name))
            for name in ("end", "carried", "active", "time", "quiet")
        )
        assert same or not alike
        apart += not same
    assert alike == (apart == 0)


def test_lengths_of_blocks() -> None:
    """As long as the longest, blocks take what they take without lengths; else less, down to the
    time of waits. Lengths that there is no room for are refused."""
    machine = _uneven(3)
    even = simulate(machine, Request(9000)).time
    assert simulate(machine, Request(9000, lengths=(3000,) * 9)).time == even
    less = simulate(machine, Request(9000, lengths=(1500,) * 9)).time
    none = simulate(machine, Request(9000, skew="empty")).time
    assert none == simulate(machine, Request(0)).time < less < even
    for lengths in ((3001,) * 9, (-1,) * 9, (1,) * 4):
        with pytest.raises(UserError, match="E421"):
            simulate(machine, Request(9000, lengths=lengths))


def _uneven(n: int) -> Machine:
    source = (
        f"ResCCLAlgo(nRanks={n}, AlgoName='a', OpType='Alltoallv', GPUPerNode={n}, nChunks={n * n},"
        f" NICPerNode={n}):\n    for r in range(nRanks):\n        for d in range(1, nRanks):\n"
        "            transfer(r, (r + d) % nRanks, 0, r * nRanks + (r + d) % nRanks, recv)\n"
    )
    plan = compile_text(Source("a", source), Options()).plan
    return prepare(plan, uniform(n, n, n, link=Rate(10.0, 1, 2.0), device=Device(block=1e6)))
