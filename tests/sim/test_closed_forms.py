"""Schedules with a known formula for their time, on links that are all alike: within 1 %.

T is of M micro-batches of c bytes in each chunk; a transfer alone takes t = α + c·β, a reduction
γ·c more. Thread blocks are fast enough not to matter, unless the test is about them.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.ir.primitives import Transport
from hccc.ir.topology import Device, Rate, uniform
from hccc.sim.costs import SWITCHED, Costs
from hccc.sim.critical import breakdown, critical_path
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate
from hccc.testing.clusters import cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
FAST = 1e7  # GB/s of a thread block
LINK, NIC, REDUCE = Rate(50.0, 1, 2.0), Rate(12.5, 1, 5.0), 400.0
GIB = 1 << 30
CLOSE = 0.01


def example(name: str, **changes: str) -> str:
    text = (EXAMPLES / f"{name}.rccl").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def simulated(
    text: str,
    request: Request,
    *,
    link: Rate = LINK,
    nic: Rate = NIC,
    device: Device | None = None,
    channels: int = 1,
    transport: Transport = Transport.DIRECT,
) -> Run:
    """Simulates a program on the uniform cluster that its header describes."""
    chosen = Options(fuse="none", channels=channels, allocator="connection", transport=transport)
    plan = compile_text(Source("x", text), chosen).plan
    device = device or Device(reduce=REDUCE, block=FAST)
    shape = plan.n_ranks, plan.gpus_per_node, plan.nics_per_node
    request = replace(request, in_place=True)  # nothing but the transfers
    return simulate(prepare(plan, uniform(*shape, link=link, nic=nic, device=device)), request)


def us(size: float, rate: float) -> float:
    return size / (rate * 1000)


@pytest.mark.quick(4)
@pytest.mark.parametrize("size", [1 << 10, 1 << 20, GIB])
@pytest.mark.parametrize("n", [4, 8, 32])
def test_ring_allreduce(n: int, size: int) -> None:
    """2(n − 1) steps of one chunk, the first n − 1 of them reductions."""
    keys = ("nRanks", "GPUPerNode", "NICPerNode")
    text = example("ring_allreduce", **{f"{key}=8": f"{key}={n}" for key in keys})
    got = simulated(text, Request(size, micro_batch=GIB))
    c = size / n
    want = 2 * (n - 1) * (LINK.alpha + us(c, LINK.bandwidth)) + (n - 1) * us(c, REDUCE)
    assert got.time == pytest.approx(want, rel=CLOSE)
    assert got.busbw == pytest.approx(2 * (n - 1) / n * size / got.time / 1000)


@pytest.mark.parametrize("batches", [16, 64])
def test_ring_allreduce_pipelined_is_bound_by_its_links(batches: int) -> None:
    """Every link carries 2(n − 1) chunks, whatever the micro-batches, and little is lost."""
    n, size = 8, GIB
    free = Rate(50.0, 1, 0.0)
    got = simulated(
        example("ring_allreduce"),
        Request(size, micro_batch=size // n // batches),
        link=free,
        device=Device(reduce=1e9, block=FAST),
    )
    assert got.batches == batches
    want = us(2 * (n - 1) * size / n, free.bandwidth)
    assert want * (1 - 1e-9) <= got.time <= want * (1 + (n + 1) / batches / (2 * (n - 1)) * 2)


CHAIN = """
ResCCLAlgo(nRanks={n}, OpType="Broadcast", GPUPerNode={n}, NICPerNode={n}, nChunks=1):
    for r in range(nRanks - 1):
        transfer(r, r + 1, r, 0, recv)
"""


@pytest.mark.parametrize("batches", [1, 4, 100])
@pytest.mark.parametrize("n", [2, 5, 16])
def test_chain_broadcast(n: int, batches: int) -> None:
    """n − 1 hops, then a micro-batch after the other: (n − 1 + M − 1) · t."""
    size = batches << 20
    got = simulated(CHAIN.format(n=n), Request(size, micro_batch=1 << 20))
    t = LINK.alpha + us(1 << 20, LINK.bandwidth)
    assert got.time == pytest.approx((n - 2 + batches) * t, rel=CLOSE)


@pytest.mark.parametrize("batches", [1, 64])
def test_tree_broadcast_and_reduce(batches: int) -> None:
    """Binomial tree of 8: 3 hops; the root sends 3 times M micro-batches, each on a link."""
    size = batches << 20
    t = LINK.alpha + us(1 << 20, LINK.bandwidth)
    got = simulated(example("binomial_broadcast"), Request(size, micro_batch=1 << 20))
    assert got.time == pytest.approx((batches + 2) * t, rel=CLOSE)
    got = simulated(example("binomial_reduce"), Request(size, micro_batch=1 << 20))
    each = t + us(1 << 20, REDUCE)
    assert got.time == pytest.approx((batches + 2) * each, rel=CLOSE)


def test_direct_alltoall() -> None:
    """Every pair has a link of its own: all at once, M micro-batches of t."""
    size = 64 << 20
    got = simulated(example("direct_alltoall"), Request(size, micro_batch=1 << 20))
    t = LINK.alpha + us(1 << 20, LINK.bandwidth)
    assert got.batches == 8
    assert got.time == pytest.approx(8 * t, rel=CLOSE)


def test_direct_transfers_into_one_port_share_it() -> None:
    """A gather to the root through one NIC: n − 1 streams divide it."""
    text = example(
        "direct_gather", **{"GPUPerNode=8": "GPUPerNode=1", "NICPerNode=8": "NICPerNode=1"}
    )
    size = 64 << 20
    got = simulated(text, Request(size, micro_batch=GIB))
    want = NIC.alpha + us(7 * size / 8, NIC.bandwidth)
    assert got.time == pytest.approx(want, rel=CLOSE)


@pytest.mark.parametrize("lengths", [(0, 1 << 20, 3 << 20), (0, 3 << 20, 1 << 20)])
def test_what_one_stream_no_longer_takes_goes_to_the_others(lengths: tuple[int, ...]) -> None:
    """Two blocks of unequal length through one NIC, which is in use until the last has come."""
    head = "nRanks=3, nChunks=3, OpType='Gatherv', Root=0, GPUPerNode=1, NICPerNode=1"
    text = f"ResCCLAlgo({head}):\n    for r in range(1, 3):\n        transfer(r, 0, 0, r, recv)\n"
    got = simulated(text, Request(9 << 20, micro_batch=GIB, lengths=lengths))
    assert got.time == pytest.approx(NIC.alpha + us(sum(lengths), NIC.bandwidth), rel=CLOSE)


def hierarchical_mesh(nodes: int, gpus: int) -> str:
    keys = {"nRanks": (32, nodes * gpus), "GPUPerNode": (8, gpus), "NICPerNode": (8, gpus)}
    changes = {f"{key}={old}": f"{key}={new}" for key, (old, new) in keys.items()}
    changes |= {"nNodes = 4": f"nNodes = {nodes}", "nGpusperNode = 8": f"nGpusperNode = {gpus}"}
    return example("hm_allreduce", **changes)


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 2), (2, 4), (2, 8)])
@pytest.mark.parametrize("slow", [1e-3, 1e3])
def test_hierarchical_mesh_allreduce(nodes: int, gpus: int, slow: float) -> None:
    """Streaming, it takes the time of its busiest links: 2(nodes − 1) chunks on a NIC, or 2·nodes
    on a link of a node, whichever is slower; 1,000 micro-batches hide the rest. (With more nodes
    HPDS leaves bubbles, and no formula is as simple.)"""
    c, batches = 1 << 24, 1000
    nic = Rate(LINK.bandwidth * slow, 1, 0.0)
    got = simulated(
        hierarchical_mesh(nodes, gpus),
        Request(nodes * gpus * c, micro_batch=-(-c // batches)),
        link=Rate(LINK.bandwidth),
        nic=nic,
        device=Device(reduce=1e9, block=FAST),
    )
    assert got.batches == batches
    within, between = 2 * nodes * us(c, LINK.bandwidth), 2 * (nodes - 1) * us(c, nic.bandwidth)
    assert got.time == pytest.approx(max(within, between), rel=CLOSE)


def test_channels_share_links_and_divide_chunks() -> None:
    """Four channels move a quarter each, and together no faster than the link."""
    for channels in (1, 4):
        got = simulated(CHAIN.format(n=2), Request(64 << 20, micro_batch=GIB), channels=channels)
        assert got.time == pytest.approx(LINK.alpha + us(64 << 20, LINK.bandwidth), rel=CLOSE)


def test_a_thread_block_moves_no_more_than_its_own_throughput() -> None:
    """One block of 5 GB/s on a link of 50: ten channels fill it."""
    device = Device(reduce=REDUCE, block=5.0)
    for channels, rate in ((1, 5.0), (4, 20.0), (10, 50.0), (20, 50.0)):
        got = simulated(
            CHAIN.format(n=2), Request(64 << 20, micro_batch=GIB), device=device, channels=channels
        )
        assert got.time == pytest.approx(LINK.alpha + us(64 << 20, rate), rel=CLOSE)


def test_what_a_runtime_adds() -> None:
    """Steps, an interpreter, LL's flags and the launch, each where it belongs."""
    size, m = 16 << 20, 16
    costs = Costs(launch=7.0, step=1.0, interpret=0.5, efficiency=0.5, latency=0.25)
    got = simulated(CHAIN.format(n=2), Request(size, micro_batch=1 << 20, costs=costs))
    each = 0.25 * LINK.alpha + 1.5 + 2 * us(1 << 20, LINK.bandwidth)
    assert got.time == pytest.approx(7.0 + m * each, rel=1e-6)


NODE = "define launch = {base => 40, entry => 0.5, wake => 9}\n"
PAIR = "define node1 = 2\ndefine bandwidth = {mesh => [((0,1) -> 50)]}\n"


@pytest.mark.parametrize(
    ("text", "channels", "launch"),
    [
        (PAIR, 4, 0.0),
        ("define launch = 43\n" + PAIR, 4, 43.0),
        (NODE + PAIR, 4, 40 + 0.5 * 4),  # of each GPU its own blocks
        (NODE + PAIR + "define cores = 1\n", 4, 40 + 0.5 * 4),
        (NODE + PAIR + "define cores = 2\n", 4, 40 + 9 + 0.5 * 4 / 2),
        (NODE + PAIR + "define cores = 8\n", 4, 40 + 9 + 0.5),  # four cores have a block
        (NODE + PAIR + "define cores = 8\n", 1, 40 + 0.5),
    ],
)
def test_a_cluster_says_what_a_launch_takes(text: str, channels: int, launch: float) -> None:
    """One block a channel; then the same as without, and --launch goes before the cluster."""
    options = Options(fuse="none", channels=channels, allocator="connection")
    plan = compile_text(Source("x", CHAIN.format(n=2)), options).plan
    machine = prepare(plan, cluster(text))
    bare = prepare(plan, cluster("\n".join(x for x in text.split("\n") if "launch" not in x)))
    request = Request(1 << 20, in_place=True)
    got, none = simulate(machine, request), simulate(bare, request)
    assert got.launch == pytest.approx(launch) and none.launch == 0.0
    assert got.time == got.launch + none.time and got.end.tolist() == none.end.tolist()
    for given in (0.0, 5.0):
        called = simulate(machine, replace(request, costs=Costs(launch=given)))
        assert called.time == given + none.time


def test_the_slowest_node_launches_last() -> None:
    """Nodes launch at once, and one without blocks counts for nothing."""
    text = "define node1 = 2\ndefine launch = 5\ndefine bandwidth = {mesh => [((0,1) -> 50)]}\n"
    text += "define nic = [((0,1) -> 5)]\ndefine node2 = 1\ndefine launch = 9\n"
    text += "define nic = [((0) -> 5)]\n"
    for transport, launch in ((Transport.DIRECT, 5.0), (Transport.STAGED, 9.0)):
        options = Options(allocator="connection", transport=transport)
        plan = compile_text(Source("x", CHAIN.format(n=3)), options).plan
        assert (plan.n_tb[2] > 0) == (transport is Transport.STAGED)  # puts are the sender's
        assert prepare(plan, cluster(text)).launch == launch


def test_blocks_that_oversubscribe_a_link_lose_some_of_it() -> None:
    """ResCCL Eq. 1: eight blocks of 25 GB/s on a link of 50 offer four times its rate."""
    device = Device(reduce=REDUCE, block=25.0)
    request = Request(64 << 20, micro_batch=GIB, costs=Costs(contention=0.1))
    got = simulated(CHAIN.format(n=2), request, device=device, channels=8)
    assert got.time == pytest.approx(LINK.alpha + us(64 << 20, 50.0 / 1.3), rel=CLOSE)


def test_staged_transport_pays_for_its_copy() -> None:
    """Send into a slot, receive out of it: behind the last message one local copy."""
    device = Device(reduce=REDUCE, block=50.0)
    got = simulated(
        CHAIN.format(n=2),
        Request(64 << 20, micro_batch=1 << 20),
        device=device,
        transport=Transport.STAGED,
    )
    t = LINK.alpha + us(1 << 20, 50.0)
    assert got.time == pytest.approx(64 * t + us(1 << 20, 50.0), rel=CLOSE)


def packets(example_: str, text: str, size: int) -> Run:
    """Simulates an example in protocol LL on a cluster."""
    chosen = Options(protocol="ll", tune="off")
    plan = compile_text(Source("x", example(example_)), chosen).plan
    return simulate(prepare(plan, cluster(text)), Request(size, in_place=True))


DGX = "define node1 = 8\ndefine device = H100\n"


@pytest.mark.parametrize(("name", "hops"), [("direct_allreduce", 1), ("ring_allreduce", 14)])
def test_packets_take_an_alpha_a_hop(name: str, hops: int) -> None:
    """A launch, then each hop; ranks take two more to begin and to end. On 8 H100 8 bytes take no
    more than 5 µs, as NCCL's model of its symmetric kernels has it (4.5 to 5.0)."""
    run = packets(name, DGX, 8)
    device = run.machine.topology.devices[0]
    assert run.time == pytest.approx(device.launch + (2 + hops) * device.alpha.ll, rel=CLOSE)
    assert run.time < 5.0 or hops > 1
    parts = breakdown(run, critical_path(run))
    assert parts["latency"] == pytest.approx(hops * device.alpha.ll)
    assert sum(parts.values()) == pytest.approx(run.finish)


def test_a_quarter_of_a_packet_is_flags() -> None:
    """A block stores the bytes of 7 ranks with a third more, at the rate of its stores."""
    run = packets("direct_allreduce", DGX, 64 << 10)
    part, device = run.payload, run.machine.topology.devices[0]
    sends = run.machine.plan.dst.counts() == 7
    copies = (1 + 7 * 4 / 3) / 2
    took = (run.end - run.ready)[sends]
    assert took.min() == pytest.approx(us(copies * part, device.store), rel=CLOSE)
    crossed = run.carried[run.machine.links]
    assert crossed.max() == pytest.approx(7 * 4 / 3 * run.size)


@pytest.mark.parametrize(
    ("name", "times", "reads"),
    [
        ("direct_allreduce", 1 + 1 / 8, 1 + 1 / 8),
        ("ring_reducescatter", 1.0, 1 / 8),
        ("direct_allgather", 1 / 8, 1.0),
    ],
)
def test_a_switch_moves_each_byte_once(name: str, times: float, reads: float) -> None:
    """Of n ranks each sends its buffer up and gets 1/n of the sum, and the other way round, at the
    share of its port that multicast addresses get."""
    options = Options(transport=Transport.MULTICAST, bits="any", tune="off", channels=32)
    t = cluster(DGX)
    made = compile_text(Source("x", example(name)), options, t).plan
    run = simulate(prepare(made, t), Request(16 * GIB))
    crossed = run.carried[run.machine.links] * SWITCHED / run.size
    ports = run.machine.resource[run.machine.links]
    assert crossed[ports % 2 == 0] == pytest.approx(times)  # out of a rank
    assert crossed[ports % 2 == 1] == pytest.approx(reads)
    rate = t.devices[0].delivered * SWITCHED
    assert run.time == pytest.approx(us(max(times, reads) * run.size, rate), rel=CLOSE)


def test_floats_that_keep_their_bits_are_loaded_one_by_one() -> None:
    options = Options(transport=Transport.MULTICAST, tune="off", channels=32)
    t = cluster(DGX)
    made = compile_text(Source("x", example("ring_reducescatter")), options, t).plan
    run = simulate(prepare(made, t), Request(GIB))
    assert run.carried[run.machine.links] / run.size == pytest.approx(7 / 8)


def test_packets_that_cannot_be_simulated_are_refused() -> None:
    with pytest.raises(UserError, match="up to 65,536 bytes") as error:
        packets("direct_allreduce", DGX, 65 << 10)
    assert error.value.problem.code == "E460" and error.value.problem.help
    host = "define node1 = 8\ndefine cores = 2\ndefine bandwidth = {mesh => [((0..7) -> 50)]}\n"
    with pytest.raises(UserError, match="processes of a host") as error:
        packets("direct_allreduce", host, 8)
    assert error.value.problem.code == "E323" and error.value.problem.help
