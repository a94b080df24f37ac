"""Headers whose nodes are not those of the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hccc.base.diagnostics import Source
from hccc.driver.assumed import host_cluster
from hccc.driver.headers import unlike
from hccc.driver.inputs import parse_cluster
from hccc.ir.topology import Level
from hccc.lang.transfer import load as transfer
from tests.driver.test_assumed import RING, program

TWO = """\
define nodenum = 2
define device = H100
define network = {nics => 4, bandwidth => 50}
define node1 = 2 * 4
"""


@pytest.mark.parametrize(
    ("gpus", "nics", "told"),
    [
        (8, 8, ["GPUPerNode=8", "NICPerNode=8"]),
        (4, 4, []),
        (2, 2, ["GPUPerNode=2", "NICPerNode=2"]),
        (4, 2, ["NICPerNode=2"]),
        (2, 1, ["GPUPerNode=2", "NICPerNode=1"]),
    ],
)
def test_what_is_ignored_is_told(gpus: int, nics: int, told: list[str]) -> None:
    found = unlike([program(gpus, nics)] * 2, parse_cluster(Source("two", TWO)))
    assert [one.message.split()[2] for one in found] == told
    assert all((one.code, one.severity) == ("W405", "warning") for one in found)
    assert all("nodes have 4" in one.message for one in found)


def test_a_nic_for_each_gpu_is_told_where_it_is_written() -> None:
    two = parse_cluster(Source("two", TWO.replace("nics => 4", "nics => 2")))
    (found,) = unlike([program(4, 4)], two)
    assert found.message == "the header's NICPerNode=4 is ignored: the cluster's nodes have 2"
    left_out = RING.read_text().replace("GPUPerNode=8, NICPerNode=8", "GPUPerNode=4")
    assert unlike([transfer.parse(Source("ring", left_out))], two) == ()


def test_what_a_header_leaves_out_is_not_told() -> None:
    text = RING.read_text().replace(", GPUPerNode=8, NICPerNode=8", "")
    left_out = transfer.parse(Source("ring", text))
    assert left_out.gpus_per_node == 8 and "GPUPerNode" not in text
    two = parse_cluster(Source("two", TWO))
    assert unlike([left_out], two) == ()
    assert unlike([replace(program(8), origin=None)], two) == ()  # made, not written


def test_nodes_that_differ_are_not_compared() -> None:
    mixed = (
        "define nodenum = 2\ndefine device = H100\ndefine network = {nics => 2, bandwidth => 50}\n"
    )
    mixed += "define node1 = 6\ndefine node2 = 2\n"
    assert unlike([program(4, 2)], parse_cluster(Source("mixed", mixed))) == ()
    assert unlike([program(8, 2)], host_cluster(program(8))) == ()


@pytest.mark.parametrize("nics", [1, 2, 3, 4])
def test_assumed_hosts_have_the_nics_of_a_header(nics: int) -> None:
    hosts = host_cluster(program(4, nics))
    ports = hosts.port[Level.NIC].reshape(2, 4).tolist()
    assert [len(set(of_host)) for of_host in ports] == [nics, nics]
    assert unlike([program(4, nics)], hosts) == ()
    left_out = RING.read_text().replace("GPUPerNode=8, NICPerNode=8", "GPUPerNode=4")
    one_each = host_cluster(transfer.parse(Source("ring", left_out)))
    assert len(set(one_each.port[Level.NIC].tolist())) == 2
