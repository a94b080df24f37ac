"""model: times keep the laws of any machine, and agree with a few that were measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.collective import PROGRAMMABLE, OpType
from hccc.predict.nccl.choose import ALGORITHMS, Forced
from hccc.predict.nccl.machine import NcclMachine, NcclNetwork
from hccc.predict.nccl.model import predict
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol
from tests.predict.nccl.machines import A100, B200, H100, KINDS, MI300X, machines, of_nodes

ops = st.sampled_from(PROGRAMMABLE)
FIRST = {op: algorithms[0] for op, algorithms in ALGORITHMS.items()}
sizes = st.lists(st.integers(1, 1 << 36), min_size=2, max_size=20)


def times(m: NcclMachine, op: OpType, of: list[int], forced: Forced = Forced()) -> list[float]:  # noqa: B008
    return [p.time_us for p in predict(m, op, of, forced)]


@settings(max_examples=40, deadline=None)
@given(machines, ops, sizes, st.sampled_from(Protocol))
def test_more_bytes_take_no_less(
    m: NcclMachine, op: OpType, of: list[int], protocol: Protocol
) -> None:
    """Of one protocol. Where a library changes protocol, measurements show less time for more
    bytes: 2 nodes of GH200 take 921 µs for 1 MB and 129 µs for 2 MB."""
    try:
        found = times(m, op, sorted(of), Forced(FIRST.get(op), protocol))
    except UserError as error:
        assert error.problem.code == "E464"
        return
    assert found[0] > 0
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(found))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(KINDS), ops, sizes)
def test_more_nodes_take_no_less(m: NcclMachine, op: OpType, of: list[int]) -> None:
    """In Simple; a library's choice may change with the nodes, for the better."""
    forced = Forced(FIRST.get(op), Protocol.SIMPLE)
    table = [times(of_nodes(m, nodes), op, of, forced) for nodes in (2, 3, 4, 8, 16, 64, 512)]
    for fewer, more in pairwise(table):
        assert all(b >= a * (1 - 1e-9) for a, b in zip(fewer, more, strict=True))


@settings(max_examples=40, deadline=None)
@given(machines, ops, sizes)
def test_nothing_is_faster_than_the_wire(m: NcclMachine, op: OpType, of: list[int]) -> None:
    """Least bytes that a GPU, or a node, sends in any algorithm: a switch may reduce."""
    n, of = m.ranks, sorted(of)
    share = {OpType.ALLREDUCE: 1.0, OpType.BROADCAST: 1.0, OpType.REDUCE: 1.0, OpType.SENDRECV: 1.0}
    if m.nodes == 1:
        least = [size * share.get(op, (n - 1) / n) / (m.wire * 1000) for size in of]
    else:
        outside = (m.nodes - 1) / m.nodes * (m.gpus if op is OpType.ALLTOALL else 1)
        least = [size * share.get(op, outside) / (m.node_wire * 1000) for size in of]
    assert all(t >= bound for t, bound in zip(times(m, op, of), least, strict=True))


def test_fewer_channels_are_slower_when_they_are_what_limits() -> None:
    found = [
        times(H100, OpType.ALLGATHER, [1 << 30], Forced(NcclAlgorithm.RING, Protocol.SIMPLE, n))[0]
        for n in (1, 4, 16)
    ]
    assert found[0] > 3 * found[1] > 9 * found[2]


def test_ll_is_for_small_calls() -> None:
    for m in (A100, H100, B200, MI300X):
        small, large = (
            [
                times(m, OpType.ALLGATHER, [size], Forced(NcclAlgorithm.RING, p))[0]
                for p in (Protocol.LL, Protocol.SIMPLE)
            ]
            for size in (1 << 10, 1 << 30)
        )
        assert small[0] < small[1]
        assert large[0] > large[1]


@pytest.mark.parametrize(
    ("machine", "op", "size", "busbw"),
    [
        (A100, OpType.ALLREDUCE, 8 << 30, 232),
        (H100, OpType.ALLREDUCE, 16 << 30, 480),
        (H100, OpType.ALLGATHER, 16 << 30, 361),
        (B200, OpType.ALLREDUCE, 16 << 30, 843),
        (MI300X, OpType.ALLREDUCE, 8 << 30, 316),
        (of_nodes(A100, 2), OpType.ALLREDUCE, 4 << 30, 188),
        (of_nodes(H100, 2), OpType.ALLREDUCE, 8 << 30, 485),
    ],
)
def test_large_calls_reach_what_machines_reach(
    machine: NcclMachine, op: OpType, size: int, busbw: float
) -> None:
    """GB/s of published runs, within 15 %."""
    n = machine.ranks
    factor = (2 if op is OpType.ALLREDUCE else 1) * (n - 1) / n
    assert size / times(machine, op, [size])[0] / 1000 * factor == pytest.approx(busbw, rel=0.15)


@pytest.mark.parametrize("nic", [1.25, 3.125, 12.5, 25, 50])
@pytest.mark.parametrize(
    "network", [NcclNetwork.INFINIBAND, NcclNetwork.ROCE, NcclNetwork.SLINGSHOT]
)
@pytest.mark.parametrize("m", [A100, H100, MI300X])
def test_sockets_are_no_faster_than_rdma_over_the_same_nic(
    m: NcclMachine, network: NcclNetwork, nic: float
) -> None:
    of = [1 << k for k in range(3, 34, 3)]
    for op in PROGRAMMABLE:
        forced = Forced(FIRST.get(op), Protocol.SIMPLE)
        rdma, sockets = (
            times(replace(m, nodes=4, nic=nic, network=n), op, of, forced)
            for n in (network, NcclNetwork.ETHERNET)
        )
        assert all(slow >= fast for slow, fast in zip(sockets, rdma, strict=True))


def test_a_forced_tree_is_no_faster_than_links() -> None:
    """Two H800, with chunks as large as the call."""
    h800 = replace(H100, gpus=2, wire=200, nvls=False)
    for size in (8 << 20, 16 << 20, 32 << 20):
        (time,) = times(h800, OpType.ALLREDUCE, [size], Forced(NcclAlgorithm.TREE, Protocol.SIMPLE))
        assert time >= size / 200_000


def test_sends_in_ll_do_not_pay_for_a_channels_messages() -> None:
    """An AlltoAll of 512 ranks is no 50 times faster in twice the bytes."""
    m = replace(MI300X, nodes=32, gpus=16, nics=8, nic=25, network=NcclNetwork.SLINGSHOT)
    small, large = times(m, OpType.ALLTOALL, [4 << 20, 32 << 20])
    assert small < 2 * large
