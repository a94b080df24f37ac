"""hccc explain: parts that add up, the meaning of each, simulated changes, the page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.topology import Device, Rate, Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.predict import what_if
from hccc.predict.gap import PARTS, Gap, gap
from hccc.sim.costs import LL128, Costs
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate
from hccc.synth.bounds.bound import limits
from tests.cli.commandline import ROOT, Hccc

EXAMPLES = ROOT / "examples"
CLUSTERS = (
    "dgx-h100",
    "mi300x",
    "resccl-topo1",
    "resccl-v100-topo1",
    "resccl-topo4",
    "hetccl-pku-v1",
    "hetccl-pku-nvidia",
    "syccl-a100-32",
)
FAST = Device(reduce=1e9, block=1e9)


def plan_of(text: str, tmp_path: Path) -> Plan:
    path = tmp_path / "x.rccl"
    path.write_text(text)
    return driver.compile_text(transfer.read(path), Options(prove=False)).plan


def header(ranks: int, op: str, chunks: int) -> str:
    return (
        f'ResCCLAlgo(nRanks={ranks}, nChannels=1, nWarps=1, AlgoName="x", OpType="{op}", '
        f"GPUPerNode={ranks}, NICPerNode=1, nChunks={chunks}):\n"
    )


def taken(plan: Plan, t: Topology, request: Request) -> Gap:
    run = simulate(prepare(plan, t), request)
    c = plan.collective
    return gap(run, limits(t, c.op, c.root))


@pytest.mark.quick(1)
@pytest.mark.parametrize("algorithm", sorted(p.stem for p in EXAMPLES.glob("*.rccl")))
def test_parts_add_up(algorithm: str) -> None:
    """Every example on every cluster of its size, small and large, with all that a call has."""
    tried = 0
    for name in CLUSTERS:
        file = EXAMPLES / "clusters" / f"{name}.cluster"
        t = cluster.load(file)
        try:
            options = Options(prove=False, tune="off")
            stops = driver.compile_text(transfer.read(EXAMPLES / f"{algorithm}.rccl"), options, t)
            machine = prepare(stops.plan, t)
        except UserError:
            continue  # of another size
        limit = limits(t, stops.plan.collective.op, stops.plan.collective.root)
        tried += 1
        for size, costs in ((1 << 10, Costs()), (1 << 24, replace(LL128, launch=5.0, step=0.2))):
            run = simulate(machine, Request(size, micro_batch=1 << 18, costs=costs))
            parts = gap(run, limit).parts
            assert tuple(parts) == PARTS
            assert min(parts.values()) >= 0
            assert sum(parts.values()) == pytest.approx(run.time, rel=1e-9)
            given = machine.launch if costs.launch is None else costs.launch
            assert parts["launch"] == given + sum(machine.meeting)
            assert parts["bound"] == pytest.approx(limit.at(run.size, costs).time)
    assert tried


def test_nothing_but_the_bound(tmp_path: Path) -> None:
    """One transfer that fills its link: α and the bytes, as no schedule can beat."""
    plan = plan_of(header(2, "Broadcast", 1) + "    transfer(0, 1, 0, 0, recv)\n", tmp_path)
    t = uniform(2, 2, 1, link=Rate(100.0, 1, 2.0), device=FAST)
    found = taken(plan, t, Request(1_000_000, 1_000_000))
    assert found.parts["bound"] == pytest.approx(12.0)
    assert sum(found.parts.values()) == pytest.approx(12.0)
    assert found.bottleneck is not None
    assert found.bottleneck.load == pytest.approx(10.0)


def test_slow_thread_blocks_are_below_capacity(tmp_path: Path) -> None:
    plan = plan_of(header(2, "Broadcast", 1) + "    transfer(0, 1, 0, 0, recv)\n", tmp_path)
    slow = uniform(2, 2, 1, link=Rate(100.0, 1, 2.0), device=Device(block=25.0))
    found = taken(plan, slow, Request(1_000_000))
    assert found.parts["below capacity"] == pytest.approx(30.0)
    assert found.bottleneck is not None
    assert found.bottleneck.offered == pytest.approx(25.0)
    assert found.bottleneck.flight == pytest.approx(1.0)


PAIRS = """
define nodenum = 2
define device = {block => 1000000, reduce => 1000000}
define latency = {nic => 0, port => 0}
define node1 = 1
define nic = [((0) -> (50,1))]
define node2 = 2
define bandwidth = {port => [((0..1) -> (400,1))]}
define nic = [((0) -> (200,1)), ((1) -> (200,1))]
"""


def test_what_need_not_cross_the_cut_is_extra_bytes(tmp_path: Path) -> None:
    """A Broadcast into another node once for each GPU there; once would do."""
    body = "    transfer(0, 1, 0, 0, recv)\n    transfer(0, 2, 0, 0, recv)\n"
    plan = plan_of(header(3, "Broadcast", 1) + body, tmp_path)
    found = taken(plan, cluster.parse(Source("pairs.cluster", PAIRS)), Request(1_000_000))
    assert found.bound.cut is not None
    assert found.bound.cut.ranks == (0,)
    assert found.parts["bound"] == pytest.approx(20.0)
    assert found.parts["extra bytes"] == pytest.approx(20.0)


def test_uneven_links_are_imbalance(tmp_path: Path) -> None:
    """Two chunks go one way where each could have gone its own."""
    body = "    transfer(0, 1, 0, 0, recv)\n    transfer(0, 1, 0, 1, recv)\n"
    body += "    transfer(1, 2, 1, 0, recv)\n    transfer(1, 2, 1, 1, recv)\n"
    plan = plan_of(header(3, "Broadcast", 2) + body, tmp_path)
    t = uniform(3, 3, 1, link=Rate(100.0), device=FAST)
    found = taken(plan, t, Request(1_000_000, 1_000_000))
    assert found.parts["bound"] == pytest.approx(5.0)  # out of rank 0 over both links
    assert found.parts["imbalance"] == pytest.approx(5.0)
    assert sum(found.parts.values()) == pytest.approx(found.run.time)


def test_pipelines_fill(tmp_path: Path) -> None:
    """Over a relay the narrow second hop waits for the first whole micro-batch."""
    body = "    transfer(0, 1, 0, 0, recv)\n    transfer(1, 2, 1, 0, recv)\n"
    plan = plan_of(header(3, "Broadcast", 1) + body, tmp_path)
    t = uniform(3, 3, 1, link=Rate(100.0), device=FAST)
    whole = taken(plan, t, Request(1_000_000, 1_000_000)).parts["fill and drain"]
    tenth = taken(plan, t, Request(1_000_000, micro_batch=100_000)).parts["fill and drain"]
    assert whole == pytest.approx(10.0) and tenth == pytest.approx(1.0)


def test_changes_are_what_simulating_them_gives(tmp_path: Path) -> None:
    text = header(2, "Broadcast", 1) + "    transfer(0, 1, 0, 0, recv)\n"
    plan = plan_of(text, tmp_path)
    t = uniform(2, 2, 1, link=Rate(100.0, 1, 2.0), device=FAST)
    run = simulate(prepare(plan, t), Request(1_000_000, 1_000_000))
    found = {c.name: c for c in what_if.outcomes(run, None, Options())}
    assert found["mesh links twice as fast"].time == pytest.approx(2 + 5)
    assert found["no latency (α = 0)"].time == pytest.approx(10)
    assert found["protocol LL"].time == pytest.approx(2 + 20)
    assert found["protocol LL"].saves == pytest.approx(1 - 22 / 12)
    assert found["thread blocks twice as fast"].saves == pytest.approx(0, abs=1e-6)
    assert [c.time for c in found.values()] == sorted(c.time for c in found.values())
    assert not any(c.name.startswith("channels") for c in found.values())  # a plan stays


def test_changes_compile_programs_anew() -> None:
    file = EXAMPLES / "clusters" / "dgx-h100.cluster"
    options = Options(prove=False, tune="off")
    t, request = cluster.load(file), Request(1 << 22)
    stops = driver.compile_text(transfer.read(EXAMPLES / "ring_allreduce.rccl"), options, t)
    run = simulate(prepare(stops.plan, t), request)
    found = {c.name: c for c in what_if.outcomes(run, stops.program, options)}
    other = replace(options, channels=4)
    four = driver.compile_text(transfer.read(EXAMPLES / "ring_allreduce.rccl"), other, t).plan
    assert found["channels 4"].time == pytest.approx(simulate(prepare(four, t), request).time)
    assert found["channels 4"].option == "--channels 4"
    assert found["channels 4"].blocks == four.blocks_per_rank == int(four.n_tb.max()) * 4


def test_other_transports_are_tried_where_the_cluster_has_them() -> None:
    """Of a mixed plan: staged, and both ways over the network; never one-sided everywhere."""
    t = cluster.load(EXAMPLES / "clusters" / "resccl-topo1.cluster")
    options, file = Options(prove=False, tune="off"), EXAMPLES / "ring_allreduce.rccl"
    stops = driver.compile_text(transfer.read(file), options, t)
    run = simulate(prepare(stops.plan, t), Request(1 << 22))
    found = {c.option: c for c in what_if.outcomes(run, stops.program, options)}
    assert {"--transport staged", "--network-lowering put", "--network-lowering slots"} <= set(
        found
    )
    assert "--transport direct" not in found and "--transport auto" not in found
    staged = driver.compile_text(
        transfer.read(file), replace(options, transport=Transport.STAGED), t
    ).plan
    took = simulate(prepare(staged, t), Request(1 << 22)).time
    assert found["--transport staged"].time == pytest.approx(took)


@pytest.mark.slow
def test_what_proxies_carry_can_be_the_bottleneck() -> None:
    t = cluster.load(EXAMPLES / "clusters" / "resccl-topo1.cluster")
    stops = driver.compile_text(
        transfer.read(EXAMPLES / "ring_allreduce.rccl"), Options(prove=False), t
    )
    found = taken(stops.plan, t, Request(1 << 26))
    assert found.bottleneck is not None
    assert found.bottleneck.name.startswith("NIC") and found.bottleneck.movers == "proxies"
    assert found.bottleneck.flight == pytest.approx(1.0)


def explained(hccc: Hccc, *more: object) -> str:
    cluster_file = EXAMPLES / "clusters" / "resccl-topo1.cluster"
    code, out, err = hccc(
        "explain", EXAMPLES / "ring_allreduce.rccl", "--cluster", cluster_file, *more
    )
    assert code == 0, err
    return out


@pytest.mark.slow
def test_the_page(hccc: Hccc) -> None:
    out = explained(hccc, "-b", "1M")
    for words in ("lower bound", "bottleneck", "where the time goes", "what would help", "NIC"):
        assert words in out
    assert "critical path" in out and max(map(len, out.splitlines())) < 140


def test_filling_and_draining_add_up_as_they_are_said(hccc: Hccc) -> None:
    """The wait for the first byte counts only beyond its part in the bound."""
    file = EXAMPLES / "clusters" / "mi300x.cluster"
    program = EXAMPLES / "binomial_broadcast.rccl"
    _, out, _ = hccc("explain", program, "--cluster", file, "-b", "1M")
    line = next(x for x in out.splitlines() if "fill and drain" in x)
    part, before, after, of_bound = map(float, re.findall(r"\d+\.\d\d(?!\d)", line))
    assert of_bound > 0
    assert before + after - of_bound == pytest.approx(part, abs=0.021)  # each is rounded


@pytest.mark.slow
def test_json_says_the_same(hccc: Hccc) -> None:
    facts = json.loads(explained(hccc, "-b", "1M", "--json", "--launch", "3"))
    assert sum(facts["parts"].values()) == pytest.approx(facts["time"])
    assert facts["parts"]["launch"] == 3
    assert facts["bound"]["time"] <= facts["time"]
    assert facts["size"] == 1 << 20
    times = [c["time"] for c in facts["what_if"]]
    assert times == sorted(times) and len(times) > 8
    assert np.isfinite(times).all()


def test_plans_are_explained_too(hccc: Hccc, tmp_path: Path) -> None:
    code, out, err = hccc("compile", EXAMPLES / "ring_allreduce.rccl", "--emit", "plan")
    assert code == 0, err
    (tmp_path / "plan.json").write_text(out)
    file = EXAMPLES / "clusters" / "dgx-h100.cluster"
    code, out, err = hccc("explain", tmp_path / "plan.json", "--cluster", file, "-b", "1M")
    assert code == 0, err
    assert "where the time goes" in out and "--channels" not in out


@pytest.mark.slow
def test_it_says_what_nccl_would_take_and_why_it_is_faster(hccc: Hccc) -> None:
    argv = ["explain", EXAMPLES / "ring_allreduce.rccl", "--cluster", "dgx-h100", "--sizes=64K"]
    code, out, _ = hccc(*argv, "-b", "64K")
    assert code == 0 and "times this, by Ring LL" in out
    assert "`hccc synth CLUSTER --collective allreduce -b 65536`" in out
    code, out, _ = hccc(*argv, "-b", "256M", "--json")
    told = json.loads(out)
    library, registered = told["library"], told["registered"]
    assert code == 0 and library["library"] == "nccl" and library["protocol"] == "Simple"
    assert not library["registered"] and registered["algorithm"] == "Symmetric"
    code, out, _ = hccc(*argv, "-b", "256M")
    assert "  NCCL " in out and "hccc synth" not in out
    assert "  registered   " in out and "by NCCL with registered buffers, Symmetric RSx" in out


@pytest.mark.slow
def test_fewer_steps_are_advised_only_where_there_can_be_fewer(hccc: Hccc) -> None:
    """Where flags in the data make NCCL faster, and the path is as short as any."""

    def said(algorithm: str) -> str:
        at = ("--cluster", "dgx-h100", "-b", "8")
        return hccc("explain", EXAMPLES / f"{algorithm}.rccl", *at)[1]

    ring, direct = said("ring_allgather"), said("direct_allgather")
    assert "flags in the data" in ring and "flags in the data" in direct
    assert "Fewer steps help" in ring
    assert "Fewer steps help" not in direct


def test_a_cluster_is_needed_and_of_the_right_size(hccc: Hccc) -> None:
    code, _, err = hccc("explain", EXAMPLES / "msccl" / "allreduce_ring_n8.xml")
    assert code == 2 and "E424" in err
    file = EXAMPLES / "clusters" / "resccl-topo2.cluster"
    code, _, err = hccc("explain", EXAMPLES / "ring_allreduce.rccl", "--cluster", file)
    assert code == 1 and "Traceback" not in err


def test_a_bound_of_links_does_not_hold_for_a_switch(hccc: Hccc) -> None:
    """An AllReduce by the switch takes less than links from rank to rank allow, and says so."""
    dgx, direct = EXAMPLES / "clusters" / "dgx-h100.cluster", EXAMPLES / "direct_allreduce.rccl"
    how = ("--tune", "off", "--channels", "32", "--cluster", dgx, "-b", "1G")
    out = hccc("explain", direct, *how, "--transport", "multicast", "--bits", "any")[1]
    bound = re.search(r"lower bound .* without the switch, (.*) %", out)
    assert bound and float(bound[1]) > 100
    assert "the switch" not in hccc("explain", direct, *how)[1]
