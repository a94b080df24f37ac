"""machine: what NCCL sees of clusters that are described by ports, meshes and links."""

from __future__ import annotations

import pytest

from hccc.diagnostics import Source, UserError
from hccc.inputs import parse_cluster
from hccc.predict.nccl.machine import Generation, Link, generation_of, of

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
    assert (m.link, m.wire, m.nics, m.nic, m.nvls) == (Link.NVSWITCH, 450, 2, 25, True)


def test_a_mesh_counts_the_links_to_all_others() -> None:
    m = of(parse_cluster(Source("mesh", MESH)))
    assert (m.generation, m.link, m.wire, m.nics) == (Generation.MI300, Link.XGMI_MESH, 192, 0)


def test_one_gpu_is_refused() -> None:
    alone = "define nodenum = 1\ndefine node1 = 1\ndefine bandwidth = {port => [((0) -> (25,1))]}\n"
    with pytest.raises(UserError) as error:
        of(parse_cluster(Source("alone", alone)))
    assert error.value.problem.code == "E463"


@pytest.mark.parametrize(
    ("name", "vendor", "generation"),
    [("NVIDIA H100 80GB HBM3", "nvidia", Generation.HOPPER),
     ("GB200", "nvidia", Generation.BLACKWELL), ("GH200", "any", Generation.HOPPER),
     ("H200", "any", Generation.HOPPER),
     ("MI325X", "amd", Generation.MI300), ("MI250X", "amd", Generation.MI200),
     ("GPU", "amd", Generation.MI300), ("GPU", "any", Generation.HOPPER)],
)  # fmt: skip
def test_generations_by_name(name: str, vendor: str, generation: Generation) -> None:
    assert generation_of(name, vendor) is generation
