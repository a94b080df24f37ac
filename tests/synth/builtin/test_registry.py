"""The built-in algorithms: right for every collective, rank count and cluster, and counted."""

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.program import Program, same
from hccc.ir.topology import Topology, uniform
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load, printer
from hccc.network.routes import unreachable
from hccc.passes.verify import verify
from hccc.synth.builtin.hierarchical import hierarchical
from hccc.synth.builtin.registry import BUILTINS, make, serving
from hccc.testing import assert_correct
from hccc.testing.clusters import topologies
from tests.health_checks import EVERY_CHECK

SETTINGS = settings(deadline=None, suppress_health_check=EVERY_CHECK, max_examples=40)
EACH = [(name, op) for name, builtin in BUILTINS.items() for op in builtin.ops]
PROOFS = {"deadlock", "race", "result"}


def wire(p: Program) -> float:
    """Returns the bytes sent by all ranks, if a rank's larger buffer has 1 byte."""
    c = p.collective
    return len(p) / c.chunks_per_block / c.most_blocks()


def steps(p: Program) -> int:
    return int(p.transfers["step"].max()) + 1


def crossing(t: Topology, p: Program) -> np.ndarray:
    """Returns the bytes that leave each node for others, if a rank's larger buffer has 1 byte."""
    src, dst = t.node[p.transfers["src"]], t.node[p.transfers["dst"]]
    c = p.collective
    sent = np.bincount(src[src != dst], minlength=t.n_nodes)
    return sent / c.chunks_per_block / c.most_blocks()


def unequal(*sizes: int) -> Topology:
    """Makes nodes of these numbers of GPUs, a NIC of 25 GB/s each."""
    lines = [f"define nodenum = {len(sizes)}"]
    for i, g in enumerate(sizes):
        lines.append(f"define node{i + 1} = {g}")
        lines.append(f"define bandwidth = {{mesh => [((0..{g - 1}) -> (100,1))]}}")
        nics = ", ".join(f"(({gpu}) -> (25,1))" for gpu in range(g))
        lines.append(f"define nic = [{nics}]")
    return cluster.parse(Source("unequal", "\n".join(lines)))


@pytest.mark.slow
@SETTINGS
@given(st.integers(2, 24), st.integers(1, 24), st.data())
def test_any_number_of_ranks(n: int, gpus: int, data: st.DataObject) -> None:
    """In nodes of any size, the last one smaller; printed, the same program."""
    name, op = data.draw(st.sampled_from(EACH))
    t = uniform(n, min(gpus, n), data.draw(st.integers(1, min(gpus, n))))
    p = make(name, t, op, data.draw(st.integers(0, n - 1)))
    assert_correct(verify(p))
    assert same(load.parse(Source("printed", printer.text(p))), p)


@pytest.mark.slow
@SETTINGS
@given(topologies().filter(lambda t: len(t) > 1), st.data())
def test_any_cluster_that_has_the_routes(t: Topology, data: st.DataObject) -> None:
    name, op = data.draw(st.sampled_from(EACH))
    try:
        p = make(name, t, op, data.draw(st.integers(0, len(t) - 1)))
    except UserError as error:
        assert error.problem.code == "E451"
        u, v = (x.ravel().astype(np.int32) for x in np.indices((len(t), len(t))))
        assert len(unreachable(t, u[u != v], v[u != v]))
        return
    assert_correct(p)
    compiled = compile_program(p, Options(tune="off"), t)
    assert {proof.name for proof in compiled.proofs} >= PROOFS


@pytest.mark.quick(6)
@pytest.mark.parametrize(("name", "op"), EACH)
@pytest.mark.parametrize(("n", "gpus"), [(2, 2), (3, 2), (7, 3), (12, 8), (16, 8), (24, 5)])
def test_each_compiles_and_is_proved(name: str, op: OpType, n: int, gpus: int) -> None:
    t = uniform(n, gpus, gpus)
    p = make(name, t, op, n - 1)
    assert_correct(p)
    assert {proof.name for proof in compile_program(p, Options(tune="off"), t).proofs} >= PROOFS


@pytest.mark.parametrize("n", [2, 5, 8, 13])
def test_direct_sends_everything_once(n: int) -> None:
    t = uniform(n, n, n)
    for op in BUILTINS["direct"].ops:
        p = make("direct", t, op)
        assert steps(p) == {OpType.ALLREDUCE: 2, OpType.ALLTOALL: n - 1}.get(op, 1)
        whole = {OpType.ALLREDUCE: 2 * (n - 1), OpType.SENDRECV: n}
        few = (OpType.GATHER, OpType.SCATTER)
        assert wire(p) == pytest.approx((n - 1) / n if op in few else whole.get(op, n - 1))


@pytest.mark.parametrize("n", range(2, 25))
def test_recursive_takes_logarithmically_many_steps(n: int) -> None:
    t, rounds = uniform(n, n, n), int(log2(n))
    power = n == 1 << rounds
    for op in BUILTINS["recursive"].ops:
        p = make("recursive", t, op)
        twice = op is OpType.ALLREDUCE
        assert steps(p) == rounds * (1 + twice) + (0 if power else 3 if twice else 2)
        if power:
            sent = np.bincount(p.transfers["src"], minlength=n) / p.collective.n_chunks
            assert sent == pytest.approx((1 + twice) * (n - 1) / n)


@pytest.mark.parametrize("n", range(2, 25))
def test_binomial_trees_are_as_high_as_they_must(n: int) -> None:
    t = uniform(n, n, n)
    for op in BUILTINS["binomial"].ops:
        p = make("binomial", t, op, n // 2)
        assert steps(p) == ceil(log2(n))
        if op in (OpType.BROADCAST, OpType.REDUCE):
            assert len(p) == n - 1
        elif n == 1 << ceil(log2(n)):
            assert wire(p) == pytest.approx(log2(n) / 2)


@pytest.mark.parametrize("sizes", [(8, 8), (4, 8), (8, 4, 4), (2, 3)])
def test_hierarchical_crosses_between_nodes_as_seldom_as_it_must(sizes: tuple[int, ...]) -> None:
    t = unequal(*sizes)
    n, count = len(t), len(sizes)
    share = np.array(sizes) / n
    away = crossing(t, hierarchical(t, OpType.ALLGATHER))
    assert away == pytest.approx(share * (count - 1))
    into = crossing(t, hierarchical(t, OpType.ALLTOALL))
    assert into == pytest.approx(share * (n - np.array(sizes)))
    assert crossing(t, hierarchical(t, OpType.BROADCAST))[0] == pytest.approx(1)
    assert crossing(t, hierarchical(t, OpType.ALLREDUCE)).sum() == pytest.approx(2 * (count - 1))


def test_hierarchical_alltoall_begins_with_the_next_node() -> None:
    """Else all gateways would have chunks for one node first, whose NICs carry them late."""
    t = uniform(12, 3, 3)
    p = hierarchical(t, OpType.ALLTOALL)
    for step in (0, 1):
        rows = p.transfers[p.transfers["step"] == step]
        ends = t.node[rows["chunk"] % len(t)]
        for rank in range(len(t)):
            apart = (ends[rows["src"] == rank] - t.node[rank]) % t.n_nodes
            away = apart[apart > 0].tolist()
            assert away == sorted(away) and set(away) == {1, 2, 3}


def test_fast_nodes_are_home_more_often() -> None:
    """Nodes of 4, 4 and 8 NICs: home alone, the large one sends twice what each other does, over
    twice the NICs; homes in turn would leave the small ones a third more."""
    t = unequal(4, 4, 8)
    assert crossing(t, hierarchical(t, OpType.ALLREDUCE)) == pytest.approx([1, 1, 2])


def test_every_nic_of_a_node_carries_alike() -> None:
    t = uniform(24, 8, 8)
    for op in (OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLTOALL):
        p = hierarchical(t, op)
        src, dst = p.transfers["src"], p.transfers["dst"]
        sent = np.bincount(src[t.node[src] != t.node[dst]], minlength=24)
        assert (sent == sent[0]).all() and sent[0] > 0


def test_what_serves_what_is_said() -> None:
    with pytest.raises(UserError, match="recursive does not serve Alltoall") as caught:
        make("recursive", uniform(4, 4, 4), OpType.ALLTOALL)
    assert caught.value.problem.help == "these do: direct, hierarchical"
    assert serving(OpType.SENDRECV) == ["direct"]
    with pytest.raises(UserError, match="one rank has nobody to send to"):
        make("direct", uniform(1, 1, 1), OpType.ALLREDUCE)


def test_a_missing_route_is_named() -> None:
    links = ", ".join(f"(({a},{b}) -> (10,1))" for a, b in ((0, 1), (1, 0), (1, 2), (2, 1)))
    text = f"define nodenum = 1\ndefine node1 = 3\ndefine bandwidth = {{direct => [{links}]}}"
    t = cluster.parse(Source("line", text))
    with pytest.raises(UserError, match=r"Direct .* needs a route from rank 0 .* to rank 2"):
        make("direct", t, OpType.ALLGATHER)


@pytest.mark.slow
def test_rings_that_cross_are_printed_short() -> None:
    """Eight rings through 64 GPUs, whose loops over steps would wait for each other."""
    p = make("ring", cluster.load("syccl-h800-64.cluster"), OpType.ALLREDUCE)
    lines = list(printer.lines(p))
    assert len(p) == 64_512 and len(lines) < 600
    assert same(load.parse(Source("printed", "\n".join([*lines, ""]))), p)
