"""Sites: what was measured, here by simulating a cluster that is known, gives that cluster back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from hccc.ir.topology import check
from hccc.profile.cluster_file import FIRST_LINE
from hccc.profile.links import SIZES, Exchange, MeasuredFlows, blocks_plan, exchange_plan, rounds
from hccc.profile.site import MeasuredNode, MeasuredSite, explained, predicted, site_of
from tests.cli.test_profile import MADE

NODE = MeasuredNode(replace(MADE, ranks=4), 2, 6.0, 0.12, 40.0)


def exchanged(site: MeasuredSite, *hosts: int) -> Exchange:
    """Simulates an exchange between two ranks of a site."""
    nodes = tuple(replace(site.nodes[i], ranks=2 // len(hosts)) for i in hosts)
    slower = tuple((0, 1, x) for a, b, x in site.slower if (a, b) == hosts)
    return Exchange(hosts, SIZES, _simulated(MeasuredSite(nodes, slower)))


@cache
def _simulated(site: MeasuredSite) -> tuple[float, ...]:
    return tuple(predicted(exchange_plan(len(site.nodes)), site.topology(), SIZES).tolist())


def measured(site: MeasuredSite) -> tuple[list[Exchange], list[Exchange], list[MeasuredFlows]]:
    """Simulates what is measured of a site: within hosts, pairs, one way and all at once."""
    n = len(site.nodes)
    near = [exchanged(site, i) for i in range(n) if site.nodes[i].ranks > 1]
    far = [exchanged(site, *pair) for of_round in rounds(n) for pair in of_round]
    rate = {e.hosts: e.line.rate for e in far}
    flows = [
        MeasuredFlows(((a, b),), 1, rate[min(a, b), max(a, b)])
        for a, b in permutations(range(n), 2)
    ]
    return near, far, flows


def found(site: MeasuredSite, flows: Sequence[MeasuredFlows] = ()) -> MeasuredSite:
    near, far, one_way = measured(site)
    nodes, names = site.nodes, [f"host{i}" for i in range(len(site.nodes))]
    made, warnings = site_of(
        names, [x.profile for x in nodes], [x.ranks for x in nodes], near, far, [*one_way, *flows]
    )
    assert not warnings, warnings
    assert check(made.topology()) == []
    return made


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_site_is_found(n: int) -> None:
    made = found(MeasuredSite((NODE,) * n))
    for node in made.nodes:
        assert node.alpha == pytest.approx(NODE.alpha, rel=0.2)
        if n > 1:
            assert node.nic == pytest.approx(NODE.nic, rel=0.1)
            assert node.nic_alpha == pytest.approx(NODE.nic_alpha, rel=0.2)
    assert (made.slower, made.uplink) == ((), None)
    text = made.text()
    assert text.startswith(FIRST_LINE)  # `-o` may write it again
    assert f"define node1 = {f'{n} * ' if n > 1 else ''}2\n" in text and "node2" not in text


def test_an_algorithm_takes_as_long_on_what_was_found() -> None:
    """One that was not measured: an Alltoall of all ranks."""
    site, plan = MeasuredSite((NODE,) * 3), blocks_plan(3, 2)
    made = found(site).topology()
    sizes = (1 << 10, 1 << 16, 1 << 24)
    assert predicted(plan, made, sizes) == pytest.approx(
        predicted(plan, site.topology(), sizes), rel=0.15
    )


def test_hosts_that_differ() -> None:
    slow = replace(NODE.profile, costs=replace(NODE.profile.costs, block=3.0))
    nodes = (NODE, NODE, replace(NODE, profile=slow), replace(NODE, ranks=3))
    made = found(MeasuredSite(nodes))
    text = made.text()
    sizes = [line for line in text.splitlines() if line.startswith("define node")]
    assert sizes[1:] == ["define node1 = 2 * 2", "define node3 = 2", "define node4 = 3"]
    t = made.topology()
    assert np.bincount(t.node).tolist() == [2, 2, 2, 3]
    assert [t.devices[t.device[rank]].block for rank in (0, 2, 4, 6)] == [7, 7, 3, 7]


def test_a_host_whose_nic_is_slow() -> None:
    made = found(MeasuredSite((NODE, replace(NODE, nic=0.03), NODE)))
    assert [node.nic for node in made.nodes] == pytest.approx([0.12, 0.03, 0.12], rel=0.1)
    assert made.slower == ()


def test_a_pair_that_is_slow() -> None:
    made = found(MeasuredSite((NODE,) * 4, slower=((0, 2, 0.05),)))
    assert [pair[:2] for pair in made.slower] == [(0, 2)]
    assert made.slower[0][2] == pytest.approx(0.05, rel=0.1)
    t = made.topology()
    for hosts, rate in (((0, 2), 0.05), ((1, 3), 0.12)):
        (e,) = (e for e in measured(made)[1] if e.hosts == hosts)
        assert e.line.rate == pytest.approx(rate, rel=0.1)
    assert len(t.shared) > 4


def test_a_nic_that_one_rank_does_not_fill() -> None:
    """What all ranks of two hosts get together is the NICs' rate."""
    both = MeasuredFlows(((0, 1), (1, 0)), 2, 0.2)
    assert [node.nic for node in found(MeasuredSite((NODE,) * 2), [both]).nodes] == pytest.approx(
        [0.2] * 2
    )


def test_a_switch_that_all_share() -> None:
    """All at once each gets less than alone: its uplink is what it gets then."""
    ring = ((0, 1), (1, 2), (2, 0))
    assert found(MeasuredSite((NODE,) * 3), [MeasuredFlows(ring, 2, 0.118)]).uplink is None
    made = found(MeasuredSite((NODE,) * 3), [MeasuredFlows(ring, 2, 0.04)])
    assert made.uplink == 0.04 and "Hosts share something" in "".join(made.told)
    plan, size = blocks_plan(3, 2), 12 << 20
    bytes_out = 2 * 4 * size / 6  # of a host: its ranks send a sixth to each of four others
    (took,) = predicted(plan, made.topology(), [size])
    assert took == pytest.approx(bytes_out / 0.04 * 1e-3, rel=0.1)


def test_what_is_warned_of() -> None:
    near, far, _ = measured(MeasuredSite((NODE,) * 2))
    odd = replace(far[0], times=tuple(100.0 + 1e5 * (i % 2) for i in range(len(SIZES))))
    flows = [MeasuredFlows(((0, 1),), 1, 0.1), MeasuredFlows(((1, 0),), 1, 0.05)]
    _, warnings = site_of(["a", "b"], [NODE.profile] * 2, [2, 2], near, [odd], flows)
    assert [problem.code for problem in warnings] == ["W406"] * 2
    assert "a and b: α and GB/s explain little" in warnings[0].message
    assert "a sends 0.1 GB/s to b, and gets 0.05 back" in warnings[1].message


def test_what_the_simulator_explains_is_told() -> None:
    """To the right and the wrong cluster."""
    site = MeasuredSite((NODE,) * 2)
    e = exchanged(site, 0, 1)
    assert np.abs(explained(e, site.nodes)).max() < 1e-3
    wrong = [replace(node, nic=0.06) for node in site.nodes]
    assert np.abs(explained(e, wrong)).max() > 0.5
