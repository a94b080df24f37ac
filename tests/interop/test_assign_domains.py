"""Imported schedules in the memory domains of a cluster: mixed plans of messages only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.api import functions as api
from hccc.base.diagnostics import Source, UserError
from hccc.cli.main import cli
from hccc.driver.compilation import compile_program
from hccc.driver.facts import made_by
from hccc.driver.options import Options
from hccc.interop.assign_domains import assign_domains
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.interop.import_msccl import import_msccl
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.ir.transport import Transport
from hccc.proofs.prove import check_plan
from hccc.sim.machine import prepare
from hccc.testing import correct_programs, exact_inputs, execute, expected
from hccc.testing.clusters import cluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/msccl"
FILES = sorted(EXAMPLES.glob("*.xml"))


def nodes(*sizes: int, nics: int = 1, memory: str = "") -> str:
    """Makes a cluster of nodes of these numbers of GPUs, which share `nics` NICs in turn."""
    lines = []
    for number, size in enumerate(sizes, 1):
        ids = ",".join(map(str, range(size)))
        lines += [
            f"define node{number} = {size}",
            f"define bandwidth = {{port => [(({ids}) -> (100))]}}",
            "define nic = ["
            + ", ".join(
                f"(({','.join(map(str, range(k, size, nics)))}) -> (12))"
                for k in range(min(nics, size))
            )
            + "]",
        ]
    return "\n".join([*lines, memory])


def read(path: Path) -> Source:
    return Source(path.name, path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def uneven() -> Topology:
    return cluster(nodes(3, 4, 1))


def test_queues_between_domains_are_of_the_network(uneven: Topology) -> None:
    plan, _ = import_msccl(read(EXAMPLES / "allreduce_ring_n8.xml"), uneven)
    assert plan.transport is Transport.MIXED
    assert plan.memory_domain.tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    q = plan.queues
    far = np.flatnonzero(plan.network_queues())
    assert {(int(q.src[i]), int(q.dst[i])) for i in far} == {(2, 3), (6, 7), (7, 0)}
    assert plan.connections() == (5, 3)


def test_one_domain_is_staged() -> None:
    one = cluster(nodes(4, 4, memory="define memory = [(node1, node2)]"))
    source = read(EXAMPLES / "allreduce_ring_n8.xml")
    plan, _ = import_msccl(source, one)
    assert plan.transport is Transport.STAGED and not plan.memory_domain.any()
    assert (plan.gpus_per_node, plan.nics_per_node) == (4, 1)


def test_alike_nodes_say_their_nics(uneven: Topology) -> None:
    source = read(EXAMPLES / "allreduce_ring_n8.xml")
    alike, _ = import_msccl(source, cluster(nodes(4, 4, nics=2)))
    assert (alike.gpus_per_node, alike.nics_per_node) == (4, 2)
    unlike, _ = import_msccl(source, uneven)
    assert (unlike.gpus_per_node, unlike.nics_per_node) == (8, 8)


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(UserError, match="8 ranks, the cluster 6 GPUs") as raised:
        import_msccl(read(EXAMPLES / "allreduce_ring_n8.xml"), cluster(nodes(3, 3)))
    assert raised.value.problem.code == "E130"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_examples_are_proved_and_run_right(path: Path, uneven: Topology) -> None:
    plan, _ = import_msccl(read(path), uneven)
    assert [p.name for p in check_plan(plan)] == ["deadlock", "race", "result"]
    runs_right(plan)


def runs_right(plan: Plan) -> None:
    """Checks every element of every call; every rank's data differs."""
    inputs = exact_inputs(plan.collective, np.int64, (3,))
    want = expected(plan.collective, inputs, "sum", np.int64)
    for mode in plan.modes:
        got = execute(plan, inputs, in_place=mode, seed=7)
        assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_same_steps_are_exported(path: Path, uneven: Topology) -> None:
    one, _ = import_msccl(read(path))
    mixed, _ = import_msccl(read(path), uneven)
    options = XmlOptions("msccl", in_place=one.modes[0])
    if one.collective.op.value in ("Gather", "Scatter"):
        options = replace(options, dialect="executor")
    assert export_msccl(mixed, options) == export_msccl(one, options)


def test_proxies_are_simulated(uneven: Topology) -> None:
    plan, _ = import_msccl(read(EXAMPLES / "allreduce_ring_n8.xml"), uneven)
    assert prepare(plan, uneven).transfers.queue.tolist() == plan.network_queues().tolist()


STAGED = Options(transport=Transport.STAGED, allocator="connection", prove=False)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(correct_programs(max_ranks=5), st.data())
def test_random_schedules_in_random_domains(program: Program, data: st.DataObject) -> None:
    """Domains of any size, down to one rank; their ranks need not be neighbours."""
    plan = compile_program(program, STAGED).plan
    n = plan.n_ranks
    size = data.draw(st.lists(st.integers(1, n), min_size=1).map(lambda x: _summing(x, n)))
    t = cluster(nodes(*size))
    domain = [data.draw(st.integers(0, i)) for i in range(len(size))]
    first = [domain.index(d) for d in domain]
    mixed = assign_domains(plan, replace(t, memory_domain=np.array(first)[t.node]))
    check_plan(mixed)
    runs_right(mixed)


def _summing(sizes: list[int], n: int) -> list[int]:
    """Cuts `sizes` where their sum would exceed n, and fills up to n."""
    cut = [s for s, total in zip(sizes, np.cumsum(sizes), strict=True) if total <= n]
    return [*cut, n - sum(cut)] if sum(cut) < n else cut


@pytest.mark.slow
def test_the_command_line_takes_a_cluster(tmp_path: Path) -> None:
    place, xml = tmp_path / "c.cluster", str(EXAMPLES / "allreduce_allpairs_n8.xml")
    place.write_text(nodes(3, 4, 1))
    args = ["run", xml, "--cluster", str(place), "-b", "1001", "-e", "1001", "-n", "1"]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, done.output
    assert "# network: 3 memory domains, 8 NICs" in done.stdout
    assert "# Out of bounds values : 0 OK" in done.stdout


def test_what_is_written_knows_its_cluster(tmp_path: Path, uneven: Topology) -> None:
    made = api.compile(EXAMPLES / "allreduce_ring_n8.xml", cluster=uneven)
    api.write(made, tmp_path / "kernels", ("cpu",))
    again = api.compile(tmp_path / "kernels")
    assert again.plan.memory_domain.tolist() == made.plan.memory_domain.tolist()
    assert api.simulate(again, 4096).results[0].time > 0
    assert (made_by(again.plan.provenance) or "").endswith(": imported")  # no option had a say


def test_a_plan_takes_no_cluster(tmp_path: Path) -> None:
    place, plan = tmp_path / "c.cluster", tmp_path / "plan.json"
    place.write_text(nodes(3, 4, 1))
    runner = CliRunner()
    args = [str(EXAMPLES / "allreduce_ring_n8.xml"), "--emit=plan", "-o", str(plan)]
    assert runner.invoke(cli, args).exit_code == 0
    refused = runner.invoke(cli, ["check", str(plan), "--cluster", str(place)])
    assert isinstance(refused.exception, UserError)
    assert "--cluster has no effect" in refused.exception.problem.message
