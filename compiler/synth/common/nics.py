"""nics: the NICs of each memory domain, as far as its ranks use them."""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I8
from hccc.ir.topology import F8, Level, Topology


def nic_counts(t: Topology) -> I8:
    """Returns the number of NICs of each memory domain: i8[N]."""
    domain, _ = _nics(t)
    return np.bincount(domain, minlength=_count(t))


def nic_rates(t: Topology) -> F8:
    """Returns GB/s of all NICs of each memory domain together: f8[N], 0 without NICs."""
    domain, nic = _nics(t)
    found: F8 = np.bincount(domain, t.shared.capacity[nic], _count(t)).astype(np.float64)
    return found


def _nics(t: Topology) -> tuple[I8, I8]:
    """Returns the memory domain and the number of each NIC."""
    nic = t.port[Level.NIC]
    pairs = np.unique(np.stack([t.dense_memory_domain(), nic])[:, nic >= 0], axis=1)
    return pairs[0], pairs[1]


def _count(t: Topology) -> int:
    """Returns the number of memory domains."""
    return int(t.dense_memory_domain().max(initial=-1)) + 1
