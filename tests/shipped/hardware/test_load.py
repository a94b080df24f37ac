"""The library of hardware: every figure is sane and says where it is from."""

from __future__ import annotations

import re

import pytest

from hccc.ir.device import ALPHAS, BASES, BLOCK_RATES, Device, Network
from hccc.shipped.hardware import load
from hccc.shipped.hardware.load import Hardware

EVERY = [*load.devices().values(), *load.networks().values(), *load.library("pcie.toml").values()]
ASKED = """V100 A100 A800 H20 H100 H800 H200 B200 GB200 GB300 L40S A6000
MI250X MI300X MI355X"""
# Measured on machines (device, figure, GB/s or µs, relative tolerance), not the library's values.
MEASURED = [
    ("H100", "store", 20.5, 0.01),
    ("B200", "store", 21.4, 0.01),
    ("A100", "proxy", 6.25, 0),
    ("H100", "delivered", 367, 0.01),
    ("H200", "delivered", 367, 0.01),
    ("A100", "delivered", 235, 0.01),
    ("B200", "delivered", 677, 0.01),
    ("GB300", "delivered", 681, 0.01),
    ("GH200", "delivered", 339, 0.01),
    ("MI300X", "delivered", 315, 0.01),
    ("MI325X", "delivered", 319, 0.01),
    ("MI355X", "delivered", 403, 0.01),
    ("L40S", "delivered", 15.7, 0.01),
    ("A6000", "delivered", 22.9, 0.01),
    ("H100", "alpha_ll", 0.63, 0.01),
    ("A100", "launch", 2.7, 0),
    ("A100", "graph", 1.37, 0),
    ("H200", "launch", 2.5, 0),
    ("H200", "graph", 1.3, 0),
    ("MI250X", "launch", 2.1, 0),
]


def _name(hardware: Hardware) -> str:
    return hardware.name


@pytest.mark.parametrize("hardware", EVERY, ids=_name)
def test_every_figure_is_sane_and_has_a_source(hardware: Hardware) -> None:
    for name, figure in hardware.figures.items():
        assert len(figure.source) > 4, name
        assert isinstance(figure.value, str | bool) or 0 < figure.value < 1e5, name
    f = hardware.figures
    for times in (ALPHAS, BASES):
        ll, ll128, simple = (f[t].number if t in f else 0.0 for t in times)
        assert ll <= ll128 and ll <= simple


@pytest.mark.parametrize("hardware", load.devices().values(), ids=_name)
def test_devices(hardware: Hardware) -> None:
    d, number = hardware.device, hardware.number
    assert 0.4 * d.wire < d.delivered < d.wire
    assert max(d.load, d.store, d.proxy) <= d.block <= d.hbm / 2
    assert d.graph <= d.launch
    assert d.store * (d.blocks + 1) >= 0.95 * d.delivered or d.blocks >= 32
    assert d.blocks <= d.sms
    assert d.reduce == pytest.approx(d.hbm / 3, rel=0.01)
    assert d.nvls <= (d.link == "nvswitch") and d.nvls <= (d.generation in ("Hopper", "Blackwell"))
    network = load.network(hardware.word("node_network"))
    assert network and number("node_nic") <= 2 * network.network.bandwidth
    assert number("node_gpus") % number("node_nics") == 0
    assert load.pcie(hardware.word("pcie"), peer=False).number("wire") <= d.wire


@pytest.mark.parametrize(("name", "figure", "value", "tolerance"), MEASURED)
def test_what_was_measured_is_what_is_used(
    name: str, figure: str, value: float, tolerance: float
) -> None:
    known = load.devices()[name].figures[figure]
    assert known.number == pytest.approx(value, rel=tolerance) and not known.estimate


def test_estimates_are_named() -> None:
    h20 = load.devices()["H20"]
    assert {"store", "delivered", "alpha_simple"} <= set(h20.device.estimates)
    assert h20.figures["store"].source == "as H100"
    assert not {"store", "delivered"} & set(load.devices()["H100"].device.estimates)
    assert {"sms", "hbm", "wire", "arch"}.isdisjoint(
        name for x in load.devices().values() for name in x.estimates
    )


def test_what_the_issue_asks_for_is_there() -> None:
    assert set(ASKED.split()) <= set(load.devices())
    assert {"InfiniBand", "RoCE", "EFA", "TCPX", "Slingshot", "Ethernet"} <= set(load.networks())


def test_names_are_found_as_drivers_and_people_write_them() -> None:
    for name in ("h100", "H100-SXM", "NVIDIA H100 80GB HBM3", "H100 SXM"):
        found = load.device(name)
        assert found and found.name == "H100"
    assert load.device("H1000") is None and load.network("token ring") is None
    network = load.network("infiniband")
    assert network and network.network.name == "InfiniBand"


def test_no_two_have_one_name() -> None:
    for file in ("devices.toml", "networks.toml"):
        names = [n for x in load.library(file).values() for n in (x.name, *x.names)]
        plain = [re.sub(r"[ _-]", "", n).lower() for n in names]
        assert len(set(plain)) == len(plain)


def test_block_rates_not_given_are_the_first() -> None:
    assert Device(block=7.0).block_rates == (7.0,) * 4
    assert Device(block=7.0, load=3.0).block_rates == (7.0, 7.0, 3.0, 7.0)
    assert len(BLOCK_RATES) == len(Device().block_rates)
    assert Network().delivered == 1


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("H100 80GB", "H100"),
        ("H100_SXM5_80GB", "H100"),
        ("HGX H100", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("A100 80 GB", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("A100 80GB PCIe", "A100-PCIe"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("h100-nvl", "H100-NVL"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("GB200 NVL72", "GB200"),
        ("NVIDIA RTX A6000", "A6000"),
        ("MI250", "MI250X"),
        ("80GB", None),
        ("NVIDIA", None),
        ("T4", None),
    ],
)
def test_words_that_say_nothing_of_links(name: str, known: str | None) -> None:
    found = load.device(name)
    assert (found and found.name) == known


@pytest.mark.parametrize(
    ("name", "known", "speed"),
    [
        ("RoCE v2", "RoCE", None),
        ("RoCEv2", "RoCE", None),
        ("ib", "InfiniBand", None),
        ("InfiniBand NDR", "InfiniBand", 50),
        ("HDR", "InfiniBand", 25),
        ("HDR200", "InfiniBand", 25),
        ("InfiniBand 200G", "InfiniBand", 25),
        ("GPUDirect-TCPX", "TCPX", None),
        ("HPE Slingshot 11", "Slingshot", None),
        ("AWS EFA", "EFA", None),
        ("EFAv2", "EFA", None),
        ("10GbE", "Ethernet", 1.25),
        ("100 Gb/s Ethernet", "Ethernet", 12.5),
        ("TCP/IP", "Ethernet", None),
        ("200G", None, 25),
        ("RDMA", None, None),
    ],
)
def test_networks_may_say_how_fast_they_are(
    name: str, known: str | None, speed: float | None
) -> None:
    found = load.network(name)
    assert (found and found.name) == known
    assert load.speed(name) == speed
