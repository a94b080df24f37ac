"""Jobs of three vendor clusters on two and three hosts, network namespaces joined at 1 Gbit/s."""

from __future__ import annotations

import sys

import pytest

import benchmarks.namespaces as namespaces
from hccc.ir.job import vendor_clusters
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.runtime_library import build
from hccc.runtime.transport.ucx_transport import available
from hccc.synth.builtin.hetccl import OPS
from tests.job.test_loaded import jobs_of, wrong_calls
from tests.vendor.conftest import installed

# oneCCL on the first host; MPICH on the second; beside it, or on the third, hccc's own.
ON_TWO = vendor_clusters(
    [
        ("oneccl", [0, 1, 2], [0, 2], [1, 1]),
        ("mpich", [3, 4], [4], [1]),
        ("own", [5], [5], [1]),
    ]
)
ON_THREE = vendor_clusters(
    [
        ("oneccl", [0, 1], [0, 1], [1, 1]),
        ("mpich", [2, 3], [2], [1]),
        ("own", [4, 5], [4, 5], [1, 2]),
    ]
)
CLUSTERS = {2: ON_TWO, 3: ON_THREE}


def rank(hosts: int, batches: int) -> None:
    """Makes calls of every collective, and prints in a last line which results are wrong."""
    v = CLUSTERS[hosts]
    with Communicator.from_environment() as c:
        vendor = v.vendors[v.of_ranks()[c.rank]]
        file = installed(vendor) if vendor != "own" else ""
        wrong = wrong_calls(c, jobs_of(v, OPS, 4), batches, [(vendor, file)] * c.n_ranks)
        print(f"\n{wrong}", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "batches"), [(2, 1), (3, 2)])
def test_three_vendor_clusters_on_hosts(hosts: int, batches: int) -> None:
    usable, text = available()
    if why := namespaces.missing() or ("" if usable else text):
        pytest.skip(why)
    for vendor in ("oneccl", "mpich"):
        installed(vendor)
    build()
    each = CLUSTERS[hosts].n_ranks // hosts
    command = [sys.executable, "-c", f"from {__name__} import rank; rank({hosts}, {batches})"]
    with namespaces.hosts(hosts, "1gbit") as made:
        job = namespaces.job_on(made, each) | {
            "HCCC_TIMEOUT": "60",
            "HCCC_STANDARD": "1",
            "CCL_KVS_IFACE": "lo",
            "HCCC_NETWORK": namespaces.DEVICE,
            "HCCC_SOCKET_IFNAME": namespaces.DEVICE,
        }
        with namespaces.ranks_on(
            made, each, command, lambda r: job | {"HCCC_RANK": str(r)}
        ) as ranks:
            found = [one.communicate(timeout=300) for one in ranks]
    last = [out.rstrip().rpartition("\n")[2] for out, _ in found]
    assert last == ["[]"] * len(found), [error for _, error in found]
