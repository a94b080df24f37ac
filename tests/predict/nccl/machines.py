"""Machines as they are sold, and any that could be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from hccc.predict.nccl.machine import Generation, Link, Machine, Network

A100 = Machine(Generation.AMPERE, 1, 8, Link.NVSWITCH, 300, 8, 25)
H100 = Machine(Generation.HOPPER, 1, 8, Link.NVSWITCH, 450, 8, 50, nvls=True)
B200 = Machine(Generation.BLACKWELL, 1, 8, Link.NVSWITCH, 900, 8, 50, nvls=True)
GH200 = Machine(Generation.HOPPER, 1, 4, Link.NVLINK_MESH, 450, 4, 25, Network.SLINGSHOT)
L40S = Machine(Generation.AMPERE, 1, 4, Link.PCIE, 31.5, 1, 12.5, Network.ETHERNET, peer=False)
MI300X = Machine(Generation.MI300, 1, 8, Link.XGMI_MESH, 448, 8, 50, Network.ROCE)
MI355X = Machine(Generation.MI350, 1, 8, Link.XGMI_MESH, 538, 8, 50, Network.ROCE)
V100 = Machine(Generation.VOLTA, 1, 8, Link.NVLINK_MESH, 150, 4, 12.5)
KINDS = (A100, H100, B200, GH200, L40S, MI300X, MI355X, V100)


def of_nodes(m: Machine, nodes: int) -> Machine:
    """As many nodes of it."""
    return replace(m, nodes=nodes)


machines = st.builds(of_nodes, st.sampled_from(KINDS), st.integers(1, 512))
