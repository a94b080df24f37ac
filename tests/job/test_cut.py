"""Jobs over two hosts, network namespaces, whose line is cut."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import benchmarks.namespaces as namespaces
from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.runtime_library import build
from hccc.runtime.transport.ucx_transport import available
from hccc.synth.builtin.hetccl import hetccl

DEADLINE_S, RANKS = 3.0, 4
V = vendor_clusters([("a", [0, 1], [0], [1]), ("b", [2, 3], [2, 3], [1, 1])])


def rank() -> None:
    """Makes calls until one fails, and prints how long that took, and why."""
    with Communicator.from_environment() as c:
        c.load(hetccl(V, OpType.ALLREDUCE), micro_batches=[(0, 2)])
        x = np.ones(100_000, np.float32)
        c.all_reduce(x)
        c.set_timeout(DEADLINE_S)
        print("ready", flush=True)
        while True:
            began = time.monotonic()
            try:
                c.all_reduce(x)
            except CommunicatorError as error:
                took = time.monotonic() - began
                print(f"{took:.3f} {error.text}", flush=True)
                os._exit(0)  # who is gone cannot be told


@pytest.mark.slow
def test_a_cut_line_is_told_at_both_ends() -> None:
    usable, text = available()
    if why := namespaces.missing() or ("" if usable else text):
        pytest.skip(why)
    build()
    command = [sys.executable, "-c", f"from {__name__} import rank; rank()"]
    with namespaces.hosts(2, "1gbit") as hosts:
        job = namespaces.job_on(hosts, RANKS // 2) | {
            "HCCC_TIMEOUT": "60",
            "HCCC_STANDARD": "1",
            "HCCC_NETWORK": namespaces.DEVICE,
            "HCCC_SOCKET_IFNAME": namespaces.DEVICE,
        }
        said = [job | {"HCCC_RANK": str(r)} for r in range(RANKS)]
        with namespaces.ranks_on(hosts, RANKS // 2, command, said.__getitem__) as ranks:
            for one in ranks:
                assert one.stdout and one.stdout.readline() == "ready\n"
            time.sleep(0.3)
            down = ["ip", "-n", hosts[1].namespace, "link", "set", namespaces.DEVICE, "down"]
            subprocess.run(down, check=True)
            found = [one.communicate(timeout=30)[0].strip() for one in ranks]
    for line in found:
        took, _, text = line.partition(" ")
        assert float(took) < DEADLINE_S + 2, line
        assert "step " in text, line
