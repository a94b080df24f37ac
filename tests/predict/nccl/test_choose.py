"""choose: NCCL's and RCCL's own rules, on machines with known behaviour."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir.collective import OpType
from hccc.predict.nccl.channels import graphs
from hccc.predict.nccl.choose import Forced, choose
from hccc.predict.nccl.machine import NcclMachine, NcclNetwork
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol
from tests.predict.nccl.machines import A100, B200, H100, MI300X, MI355X, of_nodes

K, M = 1 << 10, 1 << 20
NOTHING = Forced()


def chosen(
    m: NcclMachine, op: OpType, size: int, forced: Forced = NOTHING
) -> tuple[NcclAlgorithm, Protocol, int]:
    choice = choose(m, op, np.array([float(size)]), forced)
    return *choice.options[int(choice.option[0])], int(choice.channels[0])


@pytest.mark.parametrize(("machine", "rate"), [(A100, 240), (H100, 360), (B200, 720)])
def test_rings_of_a_node_are_as_fast_as_nccl_takes_them_for(
    machine: NcclMachine, rate: float
) -> None:
    """tuning.cc's bandwidth of a ring: 240, 360 and 720 GB/s."""
    ring = graphs(machine).ring
    assert ring.channels * ring.intra == pytest.approx(rate)


@pytest.mark.parametrize(
    ("machine", "channels", "nvls"),
    [
        (A100, 24, None),
        (H100, 24, 16),
        (of_nodes(H100, 2), 16, 16),
        (B200, 32, 24),
        (MI300X, 56, None),
        (of_nodes(MI300X, 2), 64, None),
    ],
)
def test_channels_are_those_of_the_log(
    machine: NcclMachine, channels: int, nvls: int | None
) -> None:
    """`NCCL INFO … 24 coll channels, 16 nvls channels`."""
    found = graphs(machine)
    assert found.channels == channels
    assert (found.nvls_channels if found.nvls else None) == nvls


def test_h100_takes_ll_rings_up_to_a_mebibyte_and_the_switch_from_two() -> None:
    """NVIDIA/nccl-tests issue 309."""
    assert chosen(H100, OpType.ALLREDUCE, 8)[:2] == (NcclAlgorithm.RING, Protocol.LL)
    assert chosen(H100, OpType.ALLREDUCE, M)[:2] == (NcclAlgorithm.RING, Protocol.LL)
    for size in (2 * M, 64 * M, 4096 * M):
        assert chosen(H100, OpType.ALLREDUCE, size)[:2] == (NcclAlgorithm.NVLS, Protocol.SIMPLE)


def test_four_gpus_stay_on_rings() -> None:
    """H100 and B200 with four or five GPUs: the switch has too few heads."""
    for machine in (H100, B200):
        few = NcclMachine(machine.generation, 1, 4, machine.link, machine.wire, nvls=True)
        assert chosen(few, OpType.ALLREDUCE, 4096 * M)[0] is NcclAlgorithm.RING


@pytest.mark.parametrize(
    "op", [OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.BROADCAST, OpType.REDUCE]
)
@pytest.mark.parametrize("machine", [A100, H100, of_nodes(H100, 4)])
def test_all_others_are_rings(op: OpType, machine: NcclMachine) -> None:
    for size in (K, M, 1024 * M):
        assert chosen(machine, op, size)[0] is NcclAlgorithm.RING


def test_between_nodes_small_calls_take_trees() -> None:
    for machine in (A100, H100, B200, MI355X):
        assert chosen(of_nodes(machine, 4), OpType.ALLREDUCE, K)[:2] == (
            NcclAlgorithm.TREE,
            Protocol.LL,
        )
    assert chosen(of_nodes(H100, 2), OpType.ALLREDUCE, 1024 * M)[0] is NcclAlgorithm.NVLS_TREE
    assert chosen(of_nodes(A100, 2), OpType.ALLREDUCE, 1024 * M)[0] is NcclAlgorithm.RING


def test_one_gpu_a_node_gathers_by_pat() -> None:
    one = NcclMachine(H100.generation, 16, 1, H100.link, H100.wire, 1, 50)
    assert chosen(one, OpType.ALLGATHER, 64 * K)[0] is NcclAlgorithm.PAT


def test_sends_take_more_channels_where_a_part_is_over_16_mebibytes() -> None:
    """enqueue.cc addP2pToPlan: four channels to 64 MiB, twice as many for twice the size to 32."""
    sizes = [16 * K, 64 * M, 128 * M, 256 * M, 512 * M, 1024 * M]
    found = [chosen(B200, OpType.SENDRECV, size)[2] for size in sizes]
    assert found == [1, 4, 8, 16, 32, 32]
    assert chosen(B200, OpType.SENDRECV, 16 * K)[1] is Protocol.LL
    assert chosen(B200, OpType.SENDRECV, 64 * K)[1] is Protocol.SIMPLE


def test_rccl_chooses_protocols_by_bytes_of_a_rank_between_nodes() -> None:
    """rccl_wrap.cc: MI300X LL to 512 KiB, LL128 to 4,415,057 bytes; by 3.8 more on three nodes."""
    for nodes, size, protocol in (
        (2, 512 * K, Protocol.LL),
        (2, 512 * K + 16, Protocol.LL128),
        (2, 4_415_057, Protocol.LL128),
        (2, 4_415_058, Protocol.SIMPLE),
        (3, 16_000_000, Protocol.LL128),
        (3, 17_000_000, Protocol.SIMPLE),
    ):
        assert chosen(of_nodes(MI300X, nodes), OpType.ALLREDUCE, size)[1] is protocol


def test_what_is_forced_is_taken() -> None:
    forced = Forced(NcclAlgorithm.TREE, Protocol.SIMPLE, 5)
    assert chosen(H100, OpType.ALLREDUCE, K, forced) == (NcclAlgorithm.TREE, Protocol.SIMPLE, 5)


def test_what_is_not_there_is_refused() -> None:
    for op, forced in (
        (OpType.ALLGATHER, Forced(NcclAlgorithm.TREE)),
        (OpType.ALLREDUCE, Forced(NcclAlgorithm.NVLS, Protocol.LL)),
        (OpType.SENDRECV, Forced(NcclAlgorithm.RING)),
    ):
        with pytest.raises(UserError) as error:
            choose(H100, op, np.array([1.0]), forced)
        assert error.value.problem.code == "E464"


def test_ll128_needs_nics_that_write_to_gpus() -> None:
    sizes = np.exp2(np.arange(3, 34, dtype=np.float64))
    for network, used in ((NcclNetwork.INFINIBAND, True), (NcclNetwork.ETHERNET, False)):
        m = NcclMachine(H100.generation, 2, 8, H100.link, 450, 8, 50, network)
        choice = choose(m, OpType.ALLGATHER, sizes, NOTHING)
        assert (Protocol.LL128 in {choice.options[i][1] for i in choice.option}) is used
        assert chosen(m, OpType.ALLREDUCE, K, Forced(protocol=Protocol.LL128))[1] is Protocol.LL128


def test_tcpx_has_rings_in_simple_only() -> None:
    """Its instructions set NCCL_ALGO=Ring, NCCL_PROTO=Simple, NCCL_NVLS_ENABLE=0."""
    m = NcclMachine(H100.generation, 2, 8, H100.link, 450, 4, 25, NcclNetwork.TCPX, nvls=True)
    for size in (8, M, 1024 * M):
        assert chosen(m, OpType.ALLREDUCE, size)[:2] == (NcclAlgorithm.RING, Protocol.SIMPLE)
        assert chosen(m, OpType.ALLTOALL, size)[1] is Protocol.SIMPLE
    assert chosen(m, OpType.ALLREDUCE, K, Forced(NcclAlgorithm.TREE))[0] is NcclAlgorithm.TREE
    assert chosen(m, OpType.ALLREDUCE, K, Forced(protocol=Protocol.LL))[1] is Protocol.LL
