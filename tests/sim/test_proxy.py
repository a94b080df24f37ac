"""Proxies' transfers take the time of a formula: one way of α, bytes at the NIC."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.topology import Device, Rate, rates, uniform
from hccc.sim.critical import breakdown, critical_path
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate
from hccc.sim.transfers import TransferKind

LINK, NIC = Rate(50.0, 1, 2.0), Rate(12.5, 1, 5.0)
MIB = 1 << 20
ON_NIC, IN_BLOCK = MIB / 12500, MIB / 20000  # µs of a MiB


def simulated(
    transfers: str,
    batches: int,
    *,
    network: str = "put",
    nodes: int = 2,
    slots: int = 2,
    op: str = "Broadcast",
    gpus: int = 1,
    root: int = 0,
) -> Run:
    """Simulates a call of micro-batches of a MiB between nodes whose thread blocks copy 20 GB/s."""
    head = f"nRanks={nodes * gpus}, OpType='{op}', GPUPerNode={gpus}, NICPerNode=1, nChunks=1"
    head += f", Root={root}" if op == "Reduce" else ""
    text = f"ResCCLAlgo({head}):\n    {transfers}\n"
    plan = compile_text(Source("x", text), Options(network_lowering=network, slots=slots)).plan
    t = uniform(nodes * gpus, gpus, 1, link=LINK, nic=NIC, device=Device(block=20.0))
    size = batches * MIB * plan.collective.chunks_per_block * plan.collective.most_blocks()
    return simulate(prepare(plan, t), Request(size, MIB, in_place=True))


SEND = "transfer(0, 1, 0, 0, recv)"


@pytest.mark.parametrize("batches", [1, 4, 50])
def test_a_put_takes_nothing_of_its_thread_block(batches: int) -> None:
    """Bytes follow one another, each micro-batch's latency under the bytes of the next."""
    run = simulated(SEND, batches)
    assert run.machine.transfers.kind.tolist() == [TransferKind.PUT]
    assert run.end.max() == 0
    assert run.time == pytest.approx(NIC.alpha + batches * ON_NIC)
    parts = breakdown(run, critical_path(run))
    assert sum(parts.values()) == pytest.approx(run.time)
    assert parts["NIC"] == pytest.approx(ON_NIC)
    assert parts["latency"] == NIC.alpha


@pytest.mark.parametrize("batches", [1, 4])
def test_a_message_is_copied_at_both_ends_and_its_credit_comes_back(batches: int) -> None:
    """With one slot nothing overlaps: two copies, the bytes, and the way there and back."""
    run = simulated(SEND, batches, network="slots", slots=1)
    assert sorted(run.machine.transfers.kind.tolist()) == [
        TransferKind.MESSAGE,
        TransferKind.CREDIT,
    ]
    each = 2 * IN_BLOCK + ON_NIC + NIC.alpha
    assert run.time == pytest.approx(batches * each + (batches - 1) * NIC.alpha)
    parts = breakdown(run, critical_path(run))
    assert parts["NIC"] == pytest.approx(batches * ON_NIC)
    assert parts["latency"] == pytest.approx((2 * batches - 1) * NIC.alpha)
    assert parts["thread block"] == pytest.approx(2 * batches * IN_BLOCK)


def test_enough_slots_keep_the_nic_busy() -> None:
    run = simulated(SEND, 50, network="slots", slots=8)
    assert run.time == pytest.approx(50 * ON_NIC + 2 * IN_BLOCK + NIC.alpha, rel=0.01)


@pytest.mark.parametrize("batches", [1, 4])
def test_pairs_of_a_nic_share_it(batches: int) -> None:
    """A rank of one node sends to both of another, after its thread block's own copies."""
    text = "for r in range(1, nRanks):\n        transfer(0, r, 0, 0, recv)"
    run = simulated(text, batches, gpus=2)
    assert len(run.machine.transfers.src) == 2
    assert run.time == pytest.approx(LINK.alpha + IN_BLOCK + batches * 2 * ON_NIC + NIC.alpha)


def test_a_flag_arrives_after_what_was_handed_over_before() -> None:
    """A reduction over the network: data that arrive are added once their flag is there."""
    text = "transfer(0, 1, 0, 0, rrc)"
    run = simulated(text, 1, op="Reduce", root=1)
    assert sorted(run.machine.transfers.kind.tolist()) == [TransferKind.PUT, TransferKind.FLAG]
    assert run.ready.max() == pytest.approx(NIC.alpha + ON_NIC)
    parts = breakdown(run, critical_path(run))
    assert parts["NIC"] == pytest.approx(ON_NIC)
    assert sum(parts.values()) == pytest.approx(run.time)


@pytest.mark.parametrize("network", ["put", "slots"])
@pytest.mark.parametrize("way", [(0, 1), (1, 0)], ids=["there", "back"])
def test_bytes_need_a_way_and_credits_none(network: str, way: tuple[int, int]) -> None:
    """Without NICs, a link in one direction: bytes go over it, and are refused the other way."""
    head = "ResCCLAlgo(nRanks=2, OpType='Broadcast', GPUPerNode=1, nChunks=1)"
    options = Options(network_lowering=network)
    plan = compile_text(Source("x", f"{head}:\n    {SEND}\n"), options).plan
    t = uniform(2, 1, 1)
    t = replace(
        t,
        port=np.full_like(t.port, -1),
        domain=np.full_like(t.domain, -1),
        link_src=np.array(way[:1], np.int32),
        link_dst=np.array(way[1:], np.int32),
        links=rates([LINK]),
    )
    if way == (0, 1):
        kinds = prepare(plan, t).transfers.kind.tolist()
        assert (TransferKind.CREDIT in kinds) == (network == "slots")
        return
    with pytest.raises(UserError) as caught:
        prepare(plan, t)
    assert caught.value.problem.code == "E131"
    assert "from rank 0 (GPU 0 of node1) to rank 1 (GPU 0 of node2)" in str(caught.value)
