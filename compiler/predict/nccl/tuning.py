"""tuning: the constants of NCCL's model, as in its source; its tables are in `nccl.toml`.

Source: NVIDIA/nccl 2.30.7 (5067397): src/graph/tuning.cc, src/graph/topo.h, src/graph/search.cc,
src/include/device.h, src/init.cc, src/transport/nvls.cc, src/enqueue.cc, src/sym_kernels.cc. µs,
GB/s, bytes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from hccc.predict.nccl.machine import Generation, NcclNetwork

K = TypeVar("K")
Triple = tuple[float, float, float]  # by LL, LL128, Simple; or for one node, two, more


class NcclAlgorithm(StrEnum):
    """The values of NCCL_ALGO; P2P: sends and receives, which have no algorithm; Symmetric: kernels
    for registered buffers, which NCCL_ALGO does not choose."""

    TREE = "Tree"
    RING = "Ring"
    NVLS = "NVLS"
    NVLS_TREE = "NVLSTree"
    PAT = "PAT"
    P2P = "P2P"
    SYMMETRIC = "Symmetric"


class Protocol(StrEnum):
    """The values of NCCL_PROTO."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class SymmetricKernel(StrEnum):
    """NCCL's symmetric kernels, by NCCL's names without the collective. LL: flags in the data; LD,
    ST: loads and stores of peers' memory; MC: by multicast of NVLink's switches (NVLS)."""

    AG_LL_R = "AGxLL_R"
    AG_LLMC_R = "AGxLLMC_R"
    RS_LD_AG_ST = "RSxLD_AGxST"
    RS_LDMC_AG_STMC = "RSxLDMC_AGxSTMC"
    LL = "LL"
    LLMC = "LLMC"
    ST = "ST"
    STMC = "STMC"
    LD = "LD"
    LDMC = "LDMC"

    @property
    def flagged(self) -> bool:
        """Whether the data carries flags."""
        return "LL" in self.value

    @property
    def multicast(self) -> bool:
        """Whether the switches multicast, and reduce."""
        return "MC" in self.value


PROTOCOLS = tuple(Protocol)


def _keyed(kind: Callable[[str], K], section: Mapping[str, Any]) -> Mapping[K, Any]:
    """Returns a section of `nccl.toml` with its keys as enum members and its arrays as tuples."""
    values = {kind(k): tuple(v) if isinstance(v, list) else v for k, v in section.items()}
    return MappingProxyType(values)


_TABLES: Mapping[str, Any] = tomllib.loads(
    files(__package__).joinpath("nccl.toml").read_text("utf-8")
)
BASE: Mapping[NcclAlgorithm, Triple] = _keyed(NcclAlgorithm, _TABLES["base"])
STEP: Mapping[str, Mapping[NcclAlgorithm, Triple]] = MappingProxyType(
    {link: _keyed(NcclAlgorithm, steps) for link, steps in _TABLES["step"].items()}
)
MAX_LL: Mapping[Generation, Triple] = _keyed(Generation, _TABLES["max_ll"])
MAX_RING_LL128: Mapping[Generation, float] = _keyed(Generation, _TABLES["max_ring_ll128"])
MAX_TREE_LL128: Mapping[Generation, Triple] = _keyed(Generation, _TABLES["max_tree_ll128"])
MAX_TREE: Mapping[Generation, Triple] = _keyed(Generation, _TABLES["max_tree"])
MAX_NVLS_TREE: Mapping[Generation, Triple] = _keyed(Generation, _TABLES["max_nvls_tree"])
NVLS_EFFICIENCY: Mapping[Generation, float] = _keyed(Generation, _TABLES["nvls_efficiency"])
NET_LATENCY: Mapping[NcclNetwork, float] = _keyed(NcclNetwork, _TABLES["net_latency"])
NET_LATENCY_NEW = 35  # EFA of Blackwell's instances
NET_OVERHEAD = 2.0  # tuning.cc:225-233, of AMD's CPUs; 1 of Intel's
TREE_CORRECTION: tuple[tuple[float, ...], ...] = tuple(
    tuple(_TABLES["tree_correction"][p]) for p in PROTOCOLS
)
RCCL_BASE: Triple = (12.0, 12.0, 17.0)  # RCCL's tuning.cc:137
NVLINK_SHARE: Mapping[Generation, float] = _keyed(Generation, _TABLES["nvlink_share"])
XGMI: Mapping[Generation, float] = _keyed(Generation, _TABLES["xgmi"])
_INTRA, _INTER = (_keyed(Generation, _TABLES["speeds"][way]) for way in ("intra", "inter"))
# In a node and between nodes.
SPEEDS: Mapping[Generation, tuple[tuple[float, ...], tuple[float, ...]]] = MappingProxyType(
    {generation: (_INTRA[generation], _INTER[generation]) for generation in _INTRA}
)
MAX_CHANNELS = 64  # device.h:90; a search stops at half, for rings are doubled after it
NVLS_HEADS = 32  # NCCL_MAX_NVLS_ARITY
NVLS_CHANNELS = 16  # nvls.cc:155-161
NVLS_CHANNELS_BLACKWELL = (24, 32)  # one node, more
THREADS = (512, 640, 512)  # device.h:90-118
RCCL_THREADS = 256
THREAD_BYTES = (8, 8, 64)  # before another channel is taken
BUFFERS = (524_288, 4_915_200, 4_194_304)  # init.cc:810-820
STEPS = 8  # that a buffer is cut into
TRAFFIC = 32 << 10  # enqueue.cc:585: least bytes of traffic of a channel
NVLS_CHUNK = 128 << 10
P2P_CHUNK = (512 << 10, 128 << 10)  # NVLink; PCIe and networks
P2P_LL = 16 << 10  # bytes a channel up to which sends take LL
P2P_NET = 14  # GB/s of a NIC for each channel to a peer of another node
SYMMETRIC: Mapping[str, Mapping[str, float]] = _TABLES["symmetric"]
SYMMETRIC_BLOCKS = 64
SYMMETRIC_CELL = 1024  # bytes: a call is counted in whole ones
SYMMETRIC_MOST = 64 << 30  # bytes of all ranks, from which on there is no kernel
LL_FACTOR = 9  # of a byte in LL: twice the bytes, and what flags cost
MULTICAST = 0.55  # of a multicast byte for each rank that it reaches
LLMC_GAIN = 1.1
BLOCK_PENALTY = 0.025  # of more time, a thread block
BLOCK_SLACK = 1.025  # of the time of most blocks, for which fewer are taken
