"""Machines as they describe themselves: which files are read, refused, or completed by assumptions.

The files here are small ones in the shapes of what NCCL, RCCL, Azure and AWS publish.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir.topology import Level, Topology
from hccc.lang.machines.load import ImportedCluster, import_machines
from hccc.network.routes import routes

Read = Callable[..., ImportedCluster]
X16 = 'link_speed="16 GT/s" link_width="16"'
NET = '<nic><net name="{name}" dev="{dev}" speed="{speed}" port="1" guid="0x{dev}" gdr="1"/></nic>'
AMD = 'vendor="AuthenticAMD" familyid="143" modelid="49"'


def gpu(
    rank: int, links: str = "", *, gcn: str = 'gcn="908"', sm: int = 120, lanes: str = X16
) -> str:
    """Makes a GPU below a bridge of its own."""
    inner = f'<gpu dev="{rank}" sm="{sm}" {gcn} rank="{rank}" gdr="1">{links}</gpu>'
    return (
        f'<pci busid="0000:{rank + 1:02x}:00.0" class="0x060400" {X16}>'
        f'<pci busid="0000:{rank:02x}:01.0" class="0x038000" {lanes}>{inner}</pci></pci>'
    )


def link(to: int, count: int = 1) -> str:
    """Makes an xGMI link."""
    return f'<xgmi target="0000:{to:02x}:01.0" count="{count}" tclass="0x038000"/>'


def nic(
    dev: int, speed: int = 200000, name: str = "mlx5_", cls: str = "0x020700", inside: str = ""
) -> str:
    net = NET.format(name=f"{name}{dev}", dev=dev, speed=speed)
    return f'<pci busid="0000:9{dev}:00.0" class="{cls}" {X16}>{net}{inside}</pci>'


def system(*cpus: str) -> str:
    return "".join(
        [
            '<!-- as published -->\n<system version="2">',
            *(f'<cpu numaid="{i}" arch="x86_64" {AMD}>{text}</cpu>' for i, text in enumerate(cpus)),
            "</system>",
        ]
    )


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def run(*texts: str, **given: Any) -> ImportedCluster:
        paths = [tmp_path / f"machine{i}.xml" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return import_machines(paths, **given)

    return run


def rate(t: Topology, u: int, v: int) -> float:
    """Returns GB/s of one transfer from u to v."""
    found = routes(t, np.array([u], np.int32), np.array([v], np.int32))
    return float(found.bandwidth[0])


def resources(t: Topology, u: int, v: int) -> int:
    return int(routes(t, np.array([u], np.int32), np.array([v], np.int32)).uses.counts()[0])


def irregular() -> str:
    """Makes a machine of four GPUs in an unequal ring of xGMI, two NUMA nodes, a NIC at each."""
    ring = {
        0: link(1, 4) + link(2),
        1: link(0, 4) + link(3),
        2: link(3, 2) + link(0),
        3: link(2, 2) + link(1),
    }
    return system(
        gpu(0, ring[0]) + gpu(1, ring[1]) + nic(0), gpu(2, ring[2]) + gpu(3, ring[3]) + nic(1)
    )


def test_irregular_links_are_direct_links(read: Read) -> None:
    made = read(irregular())
    t = made.topology
    got = {
        (int(u), int(v)): int(n)
        for u, v, n in zip(t.link_src, t.link_dst, t.links.parallel, strict=True)
    }
    one_way = {(0, 1): 4, (0, 2): 1, (1, 3): 1, (2, 3): 2}
    assert got == one_way | {(v, u): n for (u, v), n in one_way.items()}
    assert t.devices[0].name == "MI100" and (t.links.bandwidth == 24).all()


def test_gpus_without_a_link_go_over_the_buses(read: Read) -> None:
    """From GPU 0 to GPU 3: their own PCI Express, 24 GB/s, and the CPUs' interconnect, 16."""
    t = read(irregular()).topology
    assert rate(t, 0, 3) == 16 and resources(t, 0, 3) == 3
    assert rate(t, 0, 1) == 4 * 24 and resources(t, 0, 1) == 1


def test_nics_belong_to_the_gpus_near_them(read: Read) -> None:
    t = read(irregular(), nodes=2).topology
    port = t.port[Level.NIC]
    assert t.n_nodes == 2 and port.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    nics = t.shared.bandwidth[t.level == Level.NIC]
    assert nics == pytest.approx(25 * 0.94) and t.networks[0].name == "InfiniBand"


def test_a_whole_mesh_is_a_mesh(read: Read) -> None:
    text = system("".join(gpu(u, "".join(link(v) for v in range(4) if v != u)) for u in range(4)))
    made = read(text.replace('gcn="908"', 'gcn="gfx942"').replace('sm="120"', 'sm="304"'))
    assert "mesh => [((0..3) -> (45, 1))]" in made.text and "switch" not in made.text
    assert made.topology.devices[0].name == "MI300X"


def test_pcie_only_goes_over_shared_buses(read: Read) -> None:
    """Two GPUs on x8 below one switch, a third beside it: the narrowest part of the way counts."""
    lanes = X16.replace('"16"', '"8"')
    pair = f'<pci busid="0000:f0:00.0" class="0x060400" {X16}>{gpu(0, lanes=lanes)}{gpu(1)}</pci>'
    t = read(system(pair + gpu(2) + gpu(3))).topology
    assert len(t.links) == 0 and t.devices[0].link == "pcie"
    assert rate(t, 0, 1) == 12 and resources(t, 0, 1) == 2
    assert rate(t, 1, 2) == 24 and resources(t, 1, 2) == 3


def test_a_flat_bus_is_a_port_for_each(read: Read) -> None:
    assert "port => [((0..3) -> (24, 1, 5.7))]" in read(system("".join(map(gpu, range(4))))).text


def test_nvlinks_into_a_switch_are_ports(read: Read) -> None:
    into = '<nvlink target="0000:c7:00.0" count="12" tclass="0x068000"/>'
    gpus = "".join(gpu(i, into, gcn="", sm=80) for i in range(8))
    t = read(system(gpus)).topology
    assert t.devices[0].name == "A100" and t.devices[0].link == "nvswitch"
    assert rate(t, 0, 7) == pytest.approx(235) and len(t.links) == 0


AZURE = f"""<system version="1">
  <cpu numaid="0" arch="x86_64" {AMD}>
    <pci busid="ffff:ff:01.0" class="0x060400" {X16}>
      <pci busid="0002:00:00.0" class="0x030200" {X16}/>
      <pci busid="0102:00:00.0" class="0x020700" {X16}/>
      <pci busid="0001:00:00.0" class="0x030200" {X16}/>
      <pci busid="0101:00:00.0" class="0x020700" {X16}/>
    </pci>
  </cpu>
</system>"""


def test_a_vendors_file_has_the_pci_tree_only(read: Read) -> None:
    made = read(AZURE, nodes=2)
    assert made.topology.devices[0].name == "A100" and made.topology.n_nodes == 2
    assert made.text.count("define nic = [((0) -> (23.5, 1)), ((1) -> (23.5, 1))]") == 1
    for said in (
        "PCIe generation",
        "links between GPUs",
        "the order of the bus",
        "the speed of NICs",
    ):
        assert f"# Assumed: {said}" in made.text or said in made.text
    h100 = read(AZURE, device="H100", network="RoCE").topology
    assert h100.devices[0].name == "H100" and h100.networks[0].name == "RoCE"


def test_pci_devices_name_gpus_and_networks(read: Read) -> None:
    """As AWS's p4d: an A100 by its PCI device, EFA by Amazon's; two GPUs share a NIC."""
    text = AZURE.replace('class="0x030200"', 'class="0x030200" vendor="0x10de" device="0x20b0"')
    text = text.replace('<pci busid="0102:00:00.0" class="0x020700" ' + X16 + "/>", "")
    text = text.replace('class="0x020700"', 'class="0x020000" vendor="0x1d0f" device="0xefa0"')
    made = read(text, nodes=2)
    assert "by their PCI device" in made.text and "define network = EFA1" in made.text
    assert "define nic = [((0,1) -> (10.5, 1))]" in made.text


def test_several_nics_of_a_gpu_are_one_of_several_links(read: Read) -> None:
    """As AWS's p5: four NICs below each GPU's switch."""
    switch = f'<pci busid="0000:f{{i}}:00.0" class="0x060400" {X16}>{{inside}}</pci>'
    nics = [
        "".join(nic(4 * i + j, 100000, "rdmap", "0x020000") for j in range(4)) for i in range(2)
    ]
    text = "".join(switch.format(i=i, inside=gpu(i, gcn="", sm=90) + nics[i]) for i in range(2))
    assert "define nic = [((0) -> (10.5, 4)), ((1) -> (10.5, 4))]" in read(system(text)).text


def test_nics_that_carry_nothing(read: Read) -> None:
    """Slow and virtual ones, and one that is there twice as it can reduce."""
    twice = NET.format(name="mlx5_0", dev=0, speed=200000).replace("/></nic>", ' coll="1"/></nic>')
    made = read(
        system(gpu(0) + gpu(1) + nic(0, inside=twice) + nic(1, 1000, "eth") + nic(2, name="veth"))
    )
    assert "define nic = [((0,1) -> (23.5, 1))]" in made.text
    assert "far slower than the others carry nothing: eth1" in made.text


def test_vendors_of_nics_are_their_networks(read: Read) -> None:
    """HPE's Cassini is Slingshot whatever it is called; what GPUs reach by RDMA is no socket."""
    for vendor, gdr, said in (
        ("0x17db", 1, "Slingshot"),
        ("0x15b3", 0, "RoCE"),
        ("0x8086", 1, "RoCE"),
        ("0x8086", 0, "Ethernet"),
    ):
        one = nic(0, name="net", cls="0x020000").replace('gdr="1"', f'gdr="{gdr}"')
        one = one.replace('class="0x020000"', f'class="0x020000" vendor="{vendor}"')
        network = read(system(gpu(0) + gpu(1) + one), nodes=2).topology.networks[0].name
        assert network.startswith(said)


def test_ports_of_one_nic_share_its_bus(read: Read) -> None:
    """100 and 200 Gb/s on 16 lanes of 16 GT/s, which carry 24 GB/s, as RCCL has it."""
    ports = [NET.format(name=f"mlx5_{i}", dev=i, speed=100000 * (i + 1)) for i in range(2)]
    card = f'<pci busid="0000:90:00.0" class="0x020700" {X16}>{"".join(ports)}</pci>'
    made = read(system(gpu(0) + gpu(1) + card))
    assert "ports of one NIC share its 24 GB/s" in made.text
    assert sorted(nic.rate * nic.count for nic in made.machines[0].nics) == pytest.approx([8, 16])
    apart = read(system(gpu(0) + gpu(1) + nic(0, 100000) + nic(1)))
    assert sorted(nic.rate for nic in apart.machines[0].nics) == pytest.approx([11.75, 23.5])


def hidden(count: int = 4) -> str:
    """Makes GPUs whose NVLinks lead to themselves, as Azure's NC96ads_A100_v4 shows them."""
    own = '<nvlink target="0000:{:02x}:01.0" count="12" tclass="0x030200"/>'
    return system("".join(gpu(i, own.format(i), gcn="", sm=80) for i in range(count)))


def test_links_whose_other_end_is_hidden_are_asked_for(read: Read) -> None:
    with pytest.raises(UserError, match="links of GPU 0 lead to itself") as error:
        read(hidden())
    assert error.value.problem.code == "E541" and "--links 0-1,2-3" in str(error.value.problem.help)
    pairs = read(hidden(), links="0-1,2-3")
    assert (
        rate(pairs.topology, 0, 1) == pytest.approx(235, rel=1e-4)
        and "as --links says" in pairs.text
    )
    assert rate(pairs.topology, 1, 2) == pytest.approx(24)
    assert rate(read(hidden(), links="none").topology, 0, 1) == pytest.approx(24)
    square = read(hidden(), links="0-1,1-2,2-3,3-0").topology
    assert rate(square, 0, 1) == rate(square, 3, 0) == pytest.approx(235 / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("links", "code"), [("0-9", "E541"), ("0-0", "E410"), ("all", "E410"), ("", "E410")]
)
def test_what_joins_nothing_is_refused(read: Read, links: str, code: str) -> None:
    with pytest.raises(UserError) as error:
        read(hidden(), links=links)
    assert error.value.problem.code == code


def test_no_gpu_is_guessed_by_pcie_that_its_cpu_does_not_have(read: Read) -> None:
    """As Azure's NDv2: eight V100 at 16 GT/s, it says, below a Skylake that has 8."""
    skylake = AZURE.replace(AMD, 'vendor="GenuineIntel" familyid="6" modelid="85"')
    with pytest.raises(UserError, match="more than the CPU above them has") as error:
        read(skylake)
    assert error.value.problem.code == "E542" and "--device" in str(error.value.problem.help)
    assert read(skylake, device="V100").topology.devices[0].name == "V100"
    assert read(skylake.replace("16 GT/s", "8 GT/s")).topology.devices[0].name == "V100"


def test_nvlink_to_a_nic_is_its_bus(read: Read) -> None:
    """Of two NICs on one PCIe switch each is the GPU's that links lead to it from, and faster."""
    to = '<nvlink target="0000:9{}:00.0" count="2" tclass="0x020700"/>'
    slow = X16.replace('link_width="16"', 'link_width="4"')
    gpus = "".join(gpu(i, to.format(1 - i), gcn="", sm=80) for i in range(2))
    made = read(system(gpus + nic(0, 100000).replace(X16, slow) + nic(1).replace(X16, slow)))
    assert "2 NICs on links of their GPUs" in made.text
    assert [nic.gpus for nic in made.machines[0].nics] == [(0,), (1,)]
    assert [nic.rate for nic in made.machines[0].nics] == pytest.approx([23.5, 11.75])


def test_nodes_of_several_files(read: Read) -> None:
    t = read(irregular(), AZURE).topology
    assert t.n_nodes == 2 and [d.name for d in t.devices] == ["MI100", "A100"]
    with pytest.raises(UserError, match="2 machines already"):
        read(irregular(), AZURE, nodes=2)


def test_hosts_of_one_dump_are_nodes(read: Read) -> None:
    hosts = [irregular().split('<system version="2">')[1].split("</system>")[0] for _ in range(2)]
    texts = [h.replace("<cpu ", f'<cpu host_hash="0x{i}" ') for i, h in enumerate(hosts)]
    made = read('<system version="2">' + "".join(texts) + "</system>")
    assert made.topology.n_nodes == 2 and "define node1 = 2 * 4" in made.text
    assert "no NVLink joins hosts" not in made.text
    into = link(0).replace("xgmi", "nvlink").replace("0x038000", "0x068000")
    pair = "".join(gpu(i, into.replace('"0000:00:01.0"', '"0000:c7:00.0"')) for i in range(2))
    cpus = [f'<cpu numaid="0" host_hash="0x{i}" {AMD}>{pair}</cpu>' for i in range(2)]
    assert "no NVLink joins hosts" in read(f"<system>{''.join(cpus)}</system>").text


def test_what_is_printed_is_stable_and_says_where_it_is_from(read: Read) -> None:
    made = read(irregular())
    assert made.text == read(irregular()).text
    assert made.text.startswith("# Imported by `hccc cluster import`: 1 node, 4 GPUs.\n")
    assert "machine0.xml: 4 GPUs in 2 NUMA nodes; GPUs are MI100" in made.text
    assert max(map(len, made.text.splitlines())) <= 100


HOSTILE = {
    "not XML": ("<system", "E501"),
    "a DTD": ('<!DOCTYPE s [<!ENTITY e "x">]><system>&e;</system>', "E501"),
    "another file": ("<graphs version='1'/>", "E540"),
    "no CPU": ("<system/>", "E540"),
    "no GPU": (system("<pci busid='0'/>"), "E540"),
    "too deep": ("<system>" * 40 + "</system>" * 40, "E541"),
    "too many elements": (system("<pci/>" * 70_000), "E541"),
    "too many GPUs": (system("".join(gpu(i) for i in range(300))), "E541"),
    "too many CPUs": (system(*map(gpu, range(40))), "E541"),
    "a count of links": (system(gpu(0, link(1, 10**9)) + gpu(1)), "E541"),
    "a count below 0": (system(gpu(0, link(1).replace('"1"', '"-1"')) + gpu(1)), "E541"),
    "lanes": (system(gpu(0, lanes='link_speed="16 GT/s" link_width="9999"') + gpu(1)), "E541"),
    "a long number": (system(gpu(0) + gpu(1) + nic(0, 10**30)), "E541"),
    "a long element": (f'<system a="{"x" * 70_000}"/>', "E540"),
    "GPUs of no kind": (system('<pci class="0x030200"/>'), "E542"),
    "empty": (" \n", "E403"),
    "prose": ("GPU topology of node 7", "E540"),
    "half a table": ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "E541"),
    "a strange entry": ("\tGPU0\tGPU1\nGPU0\t X \tFAR\nGPU1\tFAR\t X \n", "E541"),
    "a device twice": ("\tGPU0\tGPU0\nGPU0\t X \tNV4\n", "E541"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_machine_is_one_error(read: Read, name: str) -> None:
    text, code = HOSTILE[name]
    with pytest.raises(UserError) as error:
        read(text)
    assert error.value.problem.code == code


def test_names_cannot_leave_their_comment(read: Read) -> None:
    text = system(gpu(0) + gpu(1) + nic(0).replace("mlx5_0", "mlx5&#10;define node9 = 8"))
    made = read(text)
    assert made.topology.n_nodes == 1 and "\ndefine node9" not in made.text


@pytest.mark.parametrize("given", [{"device": "X9"}, {"network": "Token Ring"}])
def test_unknown_hardware_is_named(read: Read, given: dict[str, str]) -> None:
    with pytest.raises(UserError) as error:
        read(irregular(), **given)
    assert error.value.problem.code == "E542"


def table(*rows: str) -> str:
    """Makes a table as nvidia-smi prints it: tabs, and a header in underlined letters."""
    names = [row.split()[0] for row in rows]
    head = "\t\x1b[4m" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    legend = ["", "Legend:", "", "  X = Self", "", "  NIC0: mlx5_0", "  NIC1: mlx5_1", ""]
    return "\n".join([head, *("\t".join(row.split()) for row in rows), *legend])


def test_nvidia_smi_pairs(read: Read) -> None:
    """NVLink within pairs, PCI Express between them, a NIC beside each pair."""
    made = read(
        table(
            "GPU0 X NV4 SYS SYS PXB SYS 0-31 0 N/A",
            "GPU1 NV4 X SYS SYS PXB SYS 0-31 0 N/A",
            "GPU2 SYS SYS X NV4 SYS PIX 32-63 1 N/A",
            "GPU3 SYS SYS NV4 X SYS PIX 32-63 1 N/A",
            "NIC0 PXB PXB SYS SYS X SYS",
            "NIC1 SYS SYS PIX PIX SYS X",
        )
    )
    t = made.topology
    assert rate(t, 0, 1) == 4 * 12 and rate(t, 0, 2) == 16
    assert t.port[Level.NIC].tolist() == [0, 0, 1, 1] and "mlx5_0, mlx5_1" in made.text
    assert "GPUs are A6000" in made.text and t.networks[0].name == "InfiniBand"


@pytest.mark.parametrize("rows", [("NV12 PXB", "NV12 SYS"), ("NV12 NV4", "PXB SYS")])
def test_nvidia_smi_with_nvlink_to_a_nic(read: Read, rows: tuple[str, str]) -> None:
    """Either end may say so; the error names both."""
    gpu0, nic = rows
    with pytest.raises(UserError, match=r"GPU0 to NIC0: NV4|NIC0 to GPU0: NV12") as error:
        read(table(f"GPU0 X {gpu0} 0-31 0", "GPU1 NV12 X SYS 0-31 0", f"NIC0 {nic} X"))
    assert error.value.problem.code == "E541"


@pytest.mark.parametrize(
    ("gpus", "links", "device", "kind"),
    [
        (8, "NV12", "A100", "port"),
        (8, "NV18", "H100", "port"),
        (4, "NV4", "A100", "mesh"),
        (4, "NV6", "H100", "mesh"),
    ],
)
def test_nvidia_smi_all_joined(read: Read, gpus: int, links: str, device: str, kind: str) -> None:
    """More links than a GPU needs for all pairs can only be links into a switch."""
    rows = [
        f"GPU{u} " + " ".join("X" if u == v else links for v in range(gpus)) for u in range(gpus)
    ]
    made = read(table(*rows))
    assert made.topology.devices[0].name == device and f"{kind} => [((0..{gpus - 1})" in made.text
    total = made.machines[0].device.number("delivered")
    assert rate(made.topology, 0, 1) == pytest.approx(
        total if kind == "port" else total / 3, rel=1e-3
    )
