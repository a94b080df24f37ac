"""tuning: the constants of NCCL's model, as in its source.

Source: NVIDIA/nccl 2.30.7 (5067397): src/graph/tuning.cc, src/graph/topo.h, src/graph/search.cc,
src/include/device.h, src/init.cc, src/transport/nvls.cc, src/enqueue.cc. µs, GB/s, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from hccc.predict.nccl.machine import Generation, Network

Triple = tuple[float, float, float]  # by LL, LL128, Simple; or for one node, two, more


class Algorithm(StrEnum):
    """As NCCL_ALGO names them; P2P: sends and receives, which have no algorithm."""

    TREE = "Tree"
    RING = "Ring"
    NVLS = "NVLS"
    NVLS_TREE = "NVLSTree"
    PAT = "PAT"
    P2P = "P2P"


class Protocol(StrEnum):
    """As NCCL_PROTO names them."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


PROTOCOLS = tuple(Protocol)
BASE: Mapping[Algorithm, Triple] = MappingProxyType(  # tuning.cc:148-157
    {
        Algorithm.TREE: (6.8, 14.0, 8.4),
        Algorithm.RING: (6.6, 14.0, 8.4),
        Algorithm.NVLS: (0, 0, 0),
        Algorithm.NVLS_TREE: (0, 0, 0),
        Algorithm.PAT: (8, 8, 8),
    }
)
STEP: Mapping[str, Mapping[Algorithm, Triple]] = MappingProxyType(  # tuning.cc:158-180
    {
        "NVLINK": {
            Algorithm.TREE: (0.6, 1.25, 4.0),
            Algorithm.RING: (0.6, 1.9, 3.4),
            Algorithm.NVLS: (0, 0, 25),
            Algorithm.NVLS_TREE: (0, 0, 25),
            Algorithm.PAT: (0, 0, 4),
        },
        "PCI": {
            Algorithm.TREE: (1.0, 1.9, 4.0),
            Algorithm.RING: (1.0, 2.5, 5.7),
            Algorithm.NVLS: (0, 0, 0),
            Algorithm.NVLS_TREE: (0, 0, 0),
            Algorithm.PAT: (0, 0, 4),
        },
        "NET": {
            Algorithm.TREE: (5.0, 8.5, 14),
            Algorithm.RING: (2.7, 4.0, 14),
            Algorithm.NVLS: (0, 0, 18),
            Algorithm.NVLS_TREE: (0, 0, 20.9),
            Algorithm.PAT: (0, 0, 14),
        },
    }
)
V, A, H, B = Generation.VOLTA, Generation.AMPERE, Generation.HOPPER, Generation.BLACKWELL
MAX_LL: Mapping[Generation, Triple] = MappingProxyType(  # tuning.cc:182-188
    {V: (39.0, 39.0, 20.4), A: (87.7, 22.5, 19.0), H: (141.0, 45.0, 35.0), B: (282.0, 90.0, 70.0)}
)
MAX_RING_LL128: Mapping[Generation, float] = MappingProxyType({V: 20, A: 20, H: 36.7, B: 40})
MAX_TREE_LL128: Mapping[Generation, Triple] = MappingProxyType(
    {V: (20, 20, 20), A: (20, 20, 20), H: (36.7, 36.7, 29), B: (55.6, 31.67, 20)}
)
MAX_TREE: Mapping[Generation, Triple] = MappingProxyType(
    {V: (26.5, 18.5, 10), A: (24, 23.6, 17.8), H: (38.7, 41.4, 36), B: (70, 42.8, 24)}
)
MAX_NVLS_TREE: Mapping[Generation, Triple] = MappingProxyType(
    {V: (26.5, 18.5, 10), A: (24, 23.6, 17.8), H: (0, 57.7, 45.5), B: (0, 96, 80)}
)
NVLS_EFFICIENCY: Mapping[Generation, float] = MappingProxyType({V: 0, A: 0, H: 0.85, B: 0.74})
# What a network's plugin says that it takes (ncclNetProperties.latency), µs: aws-ofi-nccl
# src/platform-aws.c (p5en and later: 35); of Slingshot, what its machines' choices look like.
NET_LATENCY: Mapping[Network, float] = MappingProxyType(
    {Network.SLINGSHOT: 5, Network.EFA: 75, Network.EFA1: 75}
)
NET_LATENCY_NEW = 35  # EFA of Blackwell's instances
NET_OVERHEAD = 2.0  # tuning.cc:225-233, of AMD's CPUs; 1 of Intel's
TREE_CORRECTION = (  # tuning.cc:620-630, by log2(bytes / 64)
    (
        1,
        1,
        1,
        1,
        0.9,
        0.8,
        0.7,
        0.7,
        0.7,
        0.7,
        0.6,
        0.5,
        0.4,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1,
        1,
        1,
        1,
        1,
    ),
    (
        1,
        1,
        1,
        1,
        1,
        0.9,
        0.8,
        0.8,
        0.8,
        0.7,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.8,
        0.9,
        0.9,
        0.9,
        0.9,
        1,
        1,
        1,
    ),
    (
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.8,
        0.7,
        0.6,
        0.6,
        0.5,
        0.5,
        0.5,
        0.5,
        0.6,
        0.7,
        0.8,
        0.7,
        0.7,
        0.8,
        0.9,
        0.9,
        0.9,
    ),
)
RCCL_BASE: Triple = (12.0, 12.0, 17.0)  # RCCL's tuning.cc:137

# What one NVLink carries of what it is sold for (topo.h:17-35): 20 and 20.6 of 25, 40.1 of 50.
NVLINK_SHARE: Mapping[Generation, float] = MappingProxyType({V: 0.8, A: 0.8, H: 0.824, B: 0.802})
XGMI: Mapping[Generation, float] = MappingProxyType(  # GB/s of a pair
    {Generation.MI200: 36, Generation.MI300: 48, Generation.MI350: 48}
)
# search.cc:1044-1067: GB/s of a channel that the search for rings tries, in a node and between.
_OLD = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
)
SPEEDS: Mapping[Generation, tuple[tuple[float, ...], tuple[float, ...]]] = MappingProxyType(
    {
        V: _OLD,
        A: _OLD,
        H: (
            (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
            (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
        ),
        B: (
            (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
            (
                96,
                86,
                80,
                48,
                45.1,
                42,
                40,
                30,
                24,
                22,
                20,
                17.5,
                15,
                12,
                6,
                3,
                2.4,
                1.2,
                0.24,
                0.12,
            ),
        ),
    }
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
