"""machine: NCCL's view of clusters that are described by ports, meshes and links."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import parse_cluster
from hccc.predict.nccl.machine import (
    Generation,
    NcclLink,
    NcclMachine,
    NcclNetwork,
    generation_of,
    of,
)

PORTS = """
define nodenum = 2
define device = {vendor => nvidia, name => "H100-SXM"}
define node1 = 2 * 4
define bandwidth = {port => [((0..3) -> (450,1))]}
define nic = [((0..1) -> (50,1)), ((2..3) -> (25,1))]
"""
MESH = """
define nodenum = 1
define node1 = 4
define device = {vendor => amd, name => "MI300X"}
define bandwidth = {mesh => [((0..3) -> (64,1))]}
"""


def test_ports_and_nics() -> None:
    m = of(parse_cluster(Source("ports", PORTS)))
    assert (m.generation, m.nodes, m.gpus, m.ranks) == (Generation.HOPPER, 2, 4, 8)
    assert (m.link, m.wire, m.nics, m.nic, m.nvls) == (NcclLink.NVSWITCH, 450, 2, 25, True)


def test_a_mesh_counts_the_links_to_all_others() -> None:
    m = of(parse_cluster(Source("mesh", MESH)))
    assert (m.generation, m.link, m.wire, m.nics) == (Generation.MI300, NcclLink.XGMI_MESH, 192, 0)


def test_one_gpu_is_refused() -> None:
    alone = "define nodenum = 1\ndefine node1 = 1\ndefine bandwidth = {port => [((0) -> (25,1))]}\n"
    with pytest.raises(UserError) as error:
        of(parse_cluster(Source("alone", alone)))
    assert error.value.problem.code == "E463"


@pytest.mark.parametrize(
    ("name", "vendor", "generation"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia", Generation.HOPPER),
        ("GB200", "nvidia", Generation.BLACKWELL),
        ("GH200", "any", Generation.HOPPER),
        ("H200", "any", Generation.HOPPER),
        ("MI325X", "amd", Generation.MI300),
        ("MI250X", "amd", Generation.MI200),
        ("GPU", "amd", Generation.MI300),
        ("GPU", "any", Generation.HOPPER),
    ],
)
def test_generations_by_name(name: str, vendor: str, generation: Generation) -> None:
    assert generation_of(name, vendor) is generation


def seen(text: str) -> NcclMachine:
    return of(parse_cluster(Source("seen", text)))


def test_trays_of_a_rack_are_one_domain() -> None:
    rack = seen("define device = GB200\ndefine node1 = 18 * 4")
    assert (rack.nodes, rack.gpus, rack.nics, rack.nvls) == (1, 72, 72, True) and rack.grace
    two = seen("define device = GB300\ndefine node1 = 32 * 4")
    assert (two.nodes, two.gpus, two.nics) == (2, 64, 64)
    apart = seen("define device = GB300\ndefine node1 = 2 * 1")
    assert (apart.nodes, apart.gpus, apart.link) == (2, 1, NcclLink.NVSWITCH)
    assert seen("define device = H100\ndefine node1 = 2 * 4").nodes == 2


@pytest.mark.parametrize(
    ("text", "network", "nics", "nic"),
    [
        ("define device = A100\ndefine network = EFA", NcclNetwork.EFA1, 4, 12.5),
        ("define device = H100\ndefine network = EFA", NcclNetwork.EFA, 8, 50),
        (
            "define device = H100\n"
            "define network = {name => EFA, nics => 32, bandwidth => 100Gbps}",
            NcclNetwork.EFA,
            32,
            12.5,
        ),
        ("define device = H100\ndefine network = TCPX", NcclNetwork.TCPX, 4, 25),
        (
            "define device = H100\ndefine network = {name => TCPX, nics => 8}",
            NcclNetwork.TCPXO,
            8,
            25,
        ),
        ("define device = H200\ndefine network = Titanium", NcclNetwork.ROCE, 8, 50),
        ("define device = GH200", NcclNetwork.SLINGSHOT, 8, 25),
        ("define device = A100", NcclNetwork.INFINIBAND, 8, 25),
    ],
)
def test_networks(text: str, network: NcclNetwork, nics: int, nic: float) -> None:
    m = seen(text + "\ndefine node1 = 2 * 8")
    assert (m.network, m.nics) == (network, nics)
    assert m.nic == pytest.approx(nic)


def test_rates_of_links_and_nics_by_hand_may_be_the_wires() -> None:
    text = """define device = {{vendor => nvidia, name => "H100"}}
    define node1 = 2 * 8
    define bandwidth = {{port => [((0..7) -> ({},1))]}}
    define nic = [((0..7) -> ({},8))]"""
    for port, nic in ((450, 50), (367, 50)):
        m = seen(text.format(port, nic))
        assert (m.nic, m.nics, m.nvls) == (50, 8, True)
        assert m.wire == pytest.approx(450)


def test_what_the_cluster_says_of_switches_launches_and_sockets() -> None:
    assert not seen("define device = {name => H100, nvls => no}\ndefine node1 = 8").nvls
    assert seen("define device = A100\ndefine launch = 34us\ndefine node1 = 8").floor == 34
    pcie = "define device = {{name => A800, link => pcie}}\ndefine node1 = {}"
    assert [seen(pcie.format(n)).peer for n in (2, 4, 8)] == [True, True, False]
    bridge = seen(
        "define device = {name => A40, link => mesh, wire => 56, delivered => 45}\ndefine node1 = 2"
    )
    assert bridge.link is NcclLink.NVLINK_MESH
    assert bridge.wire == pytest.approx(56)


def test_a_nic_is_no_faster_than_its_bus() -> None:
    text = "define device = {}\ndefine network = {{name => IB, nics => {}, bandwidth => {}Gbps}}\n"
    for device, nics, rate, most in (
        ("A100", 8, 400, 31.5),
        ("A100", 8, 200, 25),
        ("V100", 4, 200, 15.75),
        ("H100", 8, 800, 63),
        ("H100", 32, 400, 15.75),
        ("GB300", 8, 800, 100),
    ):
        m = seen(text.format(device, nics, rate) + "define node1 = 2 * 8")
        assert m.nic == pytest.approx(most)
    by_hand = "define device = A100\ndefine node1 = 2 * 8\ndefine nic = [((0..7) -> (50,8))]"
    assert seen(by_hand).nic == 31.5


def test_cards_with_bridges() -> None:
    """Of two, the bridge is the link; rings of more go from pair to pair over PCI Express."""
    text = "define device = {{name => {}, link => {}}}\ndefine node1 = {}"
    for link in ("nvlink", "mesh"):
        pair, four = (seen(text.format("A100-PCIe", link, gpus)) for gpus in (2, 4))
        assert (pair.link, four.link) == (NcclLink.NVLINK_MESH, NcclLink.PCIE)
        assert pair.wire == pytest.approx(300)
        assert four.wire == pytest.approx(31.5)
    by_hand = "define device = {}\ndefine node1 = 2\ndefine bandwidth = {{direct => {}}}"
    both = "[((0,1) -> (25,12)), ((1,0) -> (25,12))]"
    pair = seen(by_hand.format("H100-PCIe", both))
    assert (pair.link, pair.wire) == (NcclLink.NVLINK_MESH, 300)
    with pytest.raises(UserError) as error:
        seen(text.format("L40S", "nvlink", 2))
    assert error.value.problem.code == "E138"
