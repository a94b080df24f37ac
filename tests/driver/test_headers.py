"""Headers whose nodes are not those of the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hccc.base.diagnostics import Source
from hccc.driver.assumed import host_cluster
from hccc.driver.headers import unlike
from hccc.driver.inputs import parse_cluster
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
        (8, 8, ["GPUPerNode=8"]),
        (4, 4, []),
        (2, 2, ["GPUPerNode=2"]),
        (4, 2, ["NICPerNode=2"]),
        (2, 1, ["GPUPerNode=2", "NICPerNode=1"]),
    ],
)
def test_what_is_ignored_is_told(gpus: int, nics: int, told: list[str]) -> None:
    found = unlike([program(gpus, nics)] * 2, parse_cluster(Source("two", TWO)))
    assert [one.message.split()[2] for one in found] == told
    assert all((one.code, one.severity) == ("W405", "warning") for one in found)
    assert all("nodes have 4" in one.message for one in found)


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
