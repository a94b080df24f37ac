"""Machines as they are sold, and any that could be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine, NcclNetwork

A100 = NcclMachine(Generation.AMPERE, 1, 8, NcclLink.NVSWITCH, 300, 8, 25)
H100 = NcclMachine(Generation.HOPPER, 1, 8, NcclLink.NVSWITCH, 450, 8, 50, nvls=True)
B200 = NcclMachine(Generation.BLACKWELL, 1, 8, NcclLink.NVSWITCH, 900, 8, 50, nvls=True)
GH200 = NcclMachine(
    Generation.HOPPER, 1, 4, NcclLink.NVLINK_MESH, 450, 4, 25, NcclNetwork.SLINGSHOT
)
L40S = NcclMachine(
    Generation.AMPERE, 1, 4, NcclLink.PCIE, 31.5, 1, 12.5, NcclNetwork.ETHERNET, peer=False
)
MI300X = NcclMachine(Generation.MI300, 1, 8, NcclLink.XGMI_MESH, 448, 8, 50, NcclNetwork.ROCE)
MI355X = NcclMachine(Generation.MI350, 1, 8, NcclLink.XGMI_MESH, 538, 8, 50, NcclNetwork.ROCE)
V100 = NcclMachine(Generation.VOLTA, 1, 8, NcclLink.NVLINK_MESH, 150, 4, 12.5)
KINDS = (A100, H100, B200, GH200, L40S, MI300X, MI355X, V100)


def of_nodes(m: NcclMachine, nodes: int) -> NcclMachine:
    """Returns the machine with `nodes` nodes."""
    return replace(m, nodes=nodes)


machines = st.builds(of_nodes, st.sampled_from(KINDS), st.integers(1, 512))
