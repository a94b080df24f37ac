"""`define device` and `define network`: the library's definitions, and a file's changes to them."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import parse_cluster
from hccc.ir.device import ALPHAS, BLOCK_RATES, GUESSED, Network
from hccc.ir.topology import Level, Topology, check, same
from hccc.lang.cluster.devices import OF_DEVICES, OF_NETWORKS
from hccc.lang.cluster.printer import lines
from hccc.network.graph import disconnected
from hccc.shipped.hardware import load
from hccc.testing.clusters import cluster
from tests.test_architecture import ROOT

PAGE = (ROOT / "docs" / "cluster-language.md").read_text(encoding="utf-8")


def rates(t: Topology, level: Level) -> list[float]:
    """Returns GB/s of the groups of one level, all links of each."""
    found: list[float] = t.shared.capacity[t.level == level].tolist()
    return found


@pytest.mark.parametrize("name", load.devices())
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_a_device_is_enough(name: str, size: int) -> None:
    t = cluster(f"define node1 = 2 * {size}\ndefine device = {name}")
    assert check(t) == [] and disconnected(t) is None and len(t) == 2 * size
    assert same(t, cluster("\n".join(lines(t))))
    assert t.devices[0].name == name
    assert t.launch[0].tolist() == [t.devices[0].launch, 0, 0, 0]


def test_links_are_those_of_the_device() -> None:
    h100 = cluster("define node1 = 8\ndefine device = H100")
    assert rates(h100, Level.PORT) == [367] * 8 and not rates(h100, Level.NIC)
    assert set(h100.shared.alpha.tolist()) == {3.4}
    mi300x = cluster("define node1 = 8\ndefine device = MI300X")
    assert mi300x.meshes[0] == (45, 1, 2.1)
    assert cluster("define node1 = 4\ndefine device = MI300X").meshes[0].bandwidth == 45
    gh200 = cluster("define node1 = 4\ndefine device = GH200")
    assert gh200.meshes[0].bandwidth == pytest.approx(339 / 3)
    l40s = cluster("define node1 = 2\ndefine device = L40S")
    assert rates(l40s, Level.PORT) == [15.7] * 2 and l40s.shared.alpha[0] == 5.7


def test_v100_are_a_cube_mesh() -> None:
    """Every GPU has six links of 20 GB/s; pairs without a link go over PCI Express."""
    t = cluster("define node1 = 8\ndefine device = V100")
    assert np.bincount(t.link_src, t.links.parallel).tolist() == [6] * 8
    assert len(t.links) == 32 and set(t.links.bandwidth.tolist()) == {20}
    assert rates(t, Level.PORT) == [12] * 8


def test_pcie_with_and_without_peer_access() -> None:
    text = "define node1 = 4\ndefine device = {{name => A100, link => pcie{}}}"
    peers, apart = (cluster(text.format(more)) for more in ("", ", peer => no"))
    assert rates(peers, Level.PORT) == [24] * 4 and rates(apart, Level.PORT) == [22.9] * 4
    assert apart.shared.alpha[0] == 2 * peers.shared.alpha[0] == 11.4
    assert peers.devices[0].peer and not apart.devices[0].peer
    assert "alpha_simple" in apart.devices[0].estimates
    assert "alpha_simple" not in peers.devices[0].estimates
    own = cluster(text.format(", peer => no, delivered => 9"))
    assert rates(own, Level.PORT) == [9] * 4


def test_caches_belong_to_devices() -> None:
    """Units, one rate or two; between sizes in proportion of logarithms; printed and read again."""
    more = "read => 0.3, step => 20ns, cache => [(1 MiB -> (40, 80 GB/s)), (4 MiB -> (10, 20))]"
    t = cluster(f"define node1 = 2\ndefine device = {{name => H100, {more}}}")
    d = t.devices[0]
    assert (d.read, d.step, d.cache) == (0.3, 0.02, ((1 << 20, 40, 80), (4 << 20, 10, 20)))
    for touched, block in ((1, 40), (1 << 20, 40), (2 << 20, 20), (4 << 20, 10), (1 << 40, 10)):
        assert d.copies(touched) == pytest.approx((touched, block, 2 * block))
    assert same(t, cluster("\n".join(lines(t))))
    alone = cluster("define node1 = 1\ndefine device = {cache => [(1 MiB -> 40)]}")
    assert alone.devices[0].copies(9) == pytest.approx((9, 40, 0))
    assert same(alone, cluster("\n".join(lines(alone))))
    plain = cluster("define node1 = 1\ndefine device = H100").devices[0]
    assert plain.copies(9) == (9, plain.block, 0) and (plain.read, plain.step) == (0.5, 0)


def test_every_figure_can_be_another() -> None:
    t = cluster("define node1 = 2\ndefine device = {name => H100, block => 30}")
    assert t.devices[0].block_rates == (30,) * 4 and t.devices[0].sms == 132
    assert not set(BLOCK_RATES) & set(t.devices[0].estimates)
    t = cluster("define node1 = 2\ndefine device = {name => H100, store => 30, alpha => 1}")
    assert t.devices[0].block_rates == (41, 30, 19.1, 14) and tuple(t.devices[0].alpha) == (1,) * 3
    assert set(t.shared.alpha.tolist()) == {1}
    given = "delivered => 100 GB/s, alpha_simple => 2us, launch => 7, nvls => no, sms => 12"
    t = cluster(f"define node1 = 2\ndefine device = {{name => H100, {given}}}")
    assert rates(t, Level.PORT) == [100, 100] and t.launch[0, 0] == 7 and not t.devices[0].nvls
    assert t.devices[0].sms == 12 and t.devices[0].alpha.ll == 0.63


def test_what_the_file_says_goes_first() -> None:
    t = cluster("""define device = H100\ndefine launch = {entry => 1}\ndefine latency = {nic => 9}
    define node1 = 2 * 2\ndefine bandwidth = {port => [((0,1) -> (450, 1, 0.5))]}
    define nic = [((0,1) -> 50)]""")
    assert rates(t, Level.PORT) == [450] * 4 and rates(t, Level.NIC) == [50] * 2
    assert t.launch[0].tolist() == [2.5, 1, 0, 0]
    assert sorted(set(t.shared.alpha.tolist())) == [0.5, 9]
    assert not {"delivered", "alpha_simple"} & set(t.devices[0].estimates)


@pytest.mark.parametrize(
    ("name", "nics", "rate", "alpha"),
    [
        ("InfiniBand", 8, 47, 14),
        ("RoCE", 8, 45, 14),
        ("EFA", 8, 42, 29),
        ("TCPX", 4, 17.75, 58),
        ("EFA1", 4, 10.5, 76),
    ],
)
def test_networks(name: str, nics: int, rate: float, alpha: float) -> None:
    t = cluster(f"define network = {name}\ndefine device = H100\ndefine node1 = 2 * 8")
    assert rates(t, Level.NIC) == pytest.approx([rate] * 2 * nics)
    assert set(t.shared.alpha[t.level == Level.NIC].tolist()) == {alpha}
    assert t.networks[t.network[0]].name == name


def test_nics_are_shared_or_several() -> None:
    text = "define device = H100\ndefine node1 = 2 * 8\ndefine network = {{name => RoCE, {}}}"
    few = cluster(text.format("nics => 4, bandwidth => 25"))
    assert rates(few, Level.NIC) == [22.5] * 8
    assert few.port[Level.NIC, :4].tolist() == [16, 16, 17, 17]
    many = cluster(text.format("nics => 32, bandwidth => 100Gbps, delivered => 0.8"))
    assert many.shared[16] == (10, 4, 14)
    with pytest.raises(UserError) as error:
        cluster(text.format("nics => 12"))
    assert error.value.problem.code == "E132"


def test_several_nodes_have_the_network_of_their_device() -> None:
    t = cluster("define device = MI300X\ndefine node1 = 2 * 8")
    assert t.networks[0].name == "RoCE" and rates(t, Level.NIC) == [45] * 16
    alone = cluster("define device = MI300X\ndefine node1 = 8")
    assert alone.networks == (Network(),) and not rates(alone, Level.NIC)
    joined = cluster("""define device = MI300X\ndefine node1 = 2 * 2
    define internode = (node1, node2)
    define interbandwidth = {switch => [((0,1), (0,1) >-> 50)]}""")
    assert not rates(joined, Level.NIC)


def test_rails_of_nics_that_the_library_brings() -> None:
    t = cluster(
        "define device = H100\ndefine node1 = 2 * 8\ndefine rail = ["
        + ", ".join(f"({i})" for i in range(8))
        + "]"
    )
    assert t.domain[Level.LEAF].tolist() == [*range(8)] * 2


def test_devices_of_several_kinds() -> None:
    t = cluster("""define network = RoCE\ndefine node1 = 2 * 8\ndefine device = H100
    define node3 = 4\ndefine device = {name => MI300X, proxy => 9}""")
    assert [d.name for d in t.devices] == ["H100", "MI300X"]
    assert t.devices[1].proxy == 9 and len(rates(t, Level.NIC)) == 20
    assert same(t, cluster("\n".join(lines(t))))


def test_devices_by_hand_are_as_they_were() -> None:
    """With a vendor, or an unknown name: no links, no launch, the language's latency."""
    for given in ("vendor => nvidia, name => H100, block => 7", 'name => "X 9", block => 7'):
        t = cluster(f"""define device = {{{given}}}\ndefine node1 = 2
        define bandwidth = {{mesh => [((0,1) -> 10)]}}""")
        d = t.devices[0]
        assert d.block_rates == (7,) * 4 and d.reduce == 300 and d.launch == 0
        assert t.meshes[0].alpha == 0.7 and not t.launch.any()
        assert set(d.estimates) == {"reduce", *ALPHAS}
    with pytest.raises(UserError) as error:
        cluster(f"define device = {{{given}}}\ndefine node1 = 2")
    assert error.value.problem.code == "E135"


def test_a_device_that_nobody_describes_is_guessed() -> None:
    t = cluster("define node1 = 2\ndefine bandwidth = {mesh => [((0,1) -> 10)]}")
    assert t.devices[0].estimates == GUESSED and not t.devices[0].nvls


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("define device = H10", "E138", "did you mean `H100`?"),
        ("define device = Radeon", "E138", "there are V100, A100"),
        ("define network = Infiniban", "E138", "did you mean `InfiniBand`?"),
        ("define device = {name => H100, stores => 3}", "E138", "did you mean `store`?"),
        ("define device = {name => H100, link => ring}", "E138", "nvswitch"),
        ("define device = {name => H100, nvls => maybe}", "E138", "yes, no"),
        ("define device = {name => H100, estimates => (stroe)}", "E138", "store"),
        ("define network = {name => RoCE, delivered => 1.5}", "E132", ""),
        ("define network = {name => RoCE, delivered => 5us}", "E035", ""),
        ("define network = {name => other}", "E034", "bandwidth"),
        ("define device = 7", "E035", ""),
    ],
)
def test_mistakes(text: str, code: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        cluster(f"define node1 = 2 * 2\n{text}")
    assert error.value.problem.code == code
    assert said in (error.value.problem.help or "")


def test_every_key_is_on_the_page() -> None:
    section = PAGE.split("\n## Devices\n")[1].split("\n## Links\n")[0]
    devices, networks = section.split("\n## Networks\n")
    for keys, text in ((OF_DEVICES, devices), (OF_NETWORKS, networks)):
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
        assert set(keys) <= {name for row in rows for name in row.strip().split(", ")}
    assert all(name in devices for name in load.devices())
    assert all(name in networks for name in load.networks())


def _refused(text: str) -> str:
    with pytest.raises(UserError) as error:
        parse_cluster(Source("refused", text))
    return f"{error.value.problem.code} {error.value.problem.help}"


def test_names_as_people_write_them() -> None:
    text = 'define device = {{name => {}}}\ndefine network = "{}"\ndefine node1 = 2 * 8\n'
    t = parse_cluster(Source("names", text.format("A100-SXM4-80GB", "InfiniBand HDR")))
    assert (t.devices[0].name, t.networks[0].name, t.networks[0].bandwidth) == (
        "A100",
        "InfiniBand",
        25,
    )
    t = parse_cluster(Source("names", text.format("h100-sxm", "RoCE v2")))
    assert (t.devices[0].name, t.networks[0].name, t.networks[0].bandwidth) == ("H100", "RoCE", 50)
    assert "in quotes" in _refused("define device = H100 SXM5\ndefine node1 = 8")
    assert "in quotes" in _refused("define device = A100 80GB\ndefine node1 = 8")
    assert _refused("define nodenum 2").endswith("None")


def test_a_device_that_the_library_does_not_have_has_no_links() -> None:
    assert "did you mean `MI300X`" in _refused('define device = "MI3000X"\ndefine node1 = 4')
    help = _refused("define device = {name => MI3000X}\ndefine node1 = 4")
    assert "E135" in help and "did you mean `MI300X`" in help
    help = _refused("define device = {vendor => nvidia, name => H100}\ndefine node1 = 8")
    assert "without `vendor`" in help
