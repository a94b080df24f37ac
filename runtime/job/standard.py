"""standard: the jobs of a communicator that nobody has loaded.

Where memory is that of devices on several hosts, or of several vendors, no library of kernels
serves all ranks. Then jobs do, each made at the first call of its collective and root.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hccc.ir.collective import OpType
from hccc.ir.job import Job, VendorClusters, vendor_clusters
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.job.loaded import OWN, LoadedJob

# Makes the job of a collective over vendor clusters, of a root; `hccc.torch` sets it.
Maker = Callable[[VendorClusters, OpType, int], Job]
_MAKERS: list[Maker] = []


def make_by(maker: Maker) -> None:
    """Sets what makes jobs."""
    _MAKERS[:] = [maker]


@dataclass(slots=True)
class StandardJobs:
    """The jobs of a communicator that are made by themselves, each at its first call."""

    communicator: int
    rank: int
    clusters: VendorClusters
    _loaded: dict[tuple[OpType, int], LoadedJob] = field(default_factory=dict)

    @classmethod
    def of(cls, communicator: int, rank: int, n_ranks: int) -> StandardJobs | None:
        """Makes those of a communicator; None where hccc's kernels serve all ranks. Where devices
        are on several hosts it is collective."""
        hosts, any_device = (ctypes.c_int * n_ranks)(), ctypes.c_int()
        check(library().call("CommHosts", communicator, hosts, ctypes.byref(any_device)))
        if not (_MAKERS and any_device.value):
            return None
        vendors = np.zeros(n_ranks, "S32")
        vendors[rank] = (os.environ.get("HCCC_VENDOR") or OWN).encode()
        check(
            library().call("CommGatherBytes", communicator, vendors.ctypes.data, vendors.itemsize)
        )
        found = clusters_of([name.decode() for name in vendors.tolist()], list(hosts))
        return None if found is None else cls(communicator, rank, found)

    def job(self, op: OpType, root: int) -> LoadedJob:
        """Returns the job of a collective, which is made at the first call. Raises as LoadedJob."""
        key = op, max(root, 0)
        if key not in self._loaded:
            beside = next(iter(self._loaded.values()), None)
            made = _MAKERS[0](self.clusters, *key)
            self._loaded[key] = LoadedJob(self.communicator, self.rank, made, beside=beside)
        return self._loaded[key]

    def end(self) -> None:
        """Ends the jobs."""
        for job in self._loaded.values():
            job.end()
        self._loaded.clear()


def clusters_of(vendors: list[str], hosts: list[int]) -> VendorClusters | None:
    """Returns the vendor clusters of ranks of these vendors on these hosts: the ranks of a vendor's
    library, and of hccc's own those of one host; all are border ranks. None where all ranks are on
    one host and have one vendor."""
    if len(set(hosts)) == 1 and len(set(vendors)) == 1:
        return None
    keys = [(name, host if name == OWN else -1) for name, host in zip(vendors, hosts, strict=True)]
    rows = []
    for key in dict.fromkeys(keys):
        ranks = [rank for rank, other in enumerate(keys) if other == key]
        rows.append((key[0], ranks, ranks, [1] * len(ranks)))
    return vendor_clusters(rows)
