"""Jobs over two hosts, network namespaces, whose line is cut."""

from __future__ import annotations

import os
import random
import secrets
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
    with namespaces.hosts(2, "1gbit") as hosts:
        said = {
            **os.environ,
            "HCCC_JOB": secrets.token_hex(8),
            "HCCC_NRANKS": str(RANKS),
            "HCCC_TIMEOUT": "60",
            "HCCC_STANDARD": "1",
            "HCCC_ROOT": f"{hosts[0].address}:{20000 + random.randrange(10000)}",
            "HCCC_SECRET": secrets.token_hex(16),
            "HCCC_NETWORK": namespaces.DEVICE,
            "HCCC_SOCKET_IFNAME": namespaces.DEVICE,
            "UCX_TLS": "tcp,self",
        }
        command = [sys.executable, "-c", "from tests.job.test_cut import rank; rank()"]
        ranks = [
            subprocess.Popen(
                [*hosts[r // 2].before(), *command],
                env=said | {"HCCC_RANK": str(r), "HCCC_HOST_ID": hosts[r // 2].namespace},
                stdout=subprocess.PIPE,
                text=True,
            )
            for r in range(RANKS)
        ]
        try:
            for one in ranks:
                assert one.stdout and one.stdout.readline() == "ready\n"
            time.sleep(0.3)
            down = ["ip", "-n", hosts[1].namespace, "link", "set", namespaces.DEVICE, "down"]
            subprocess.run(down, check=True)
            found = [one.communicate(timeout=30)[0].strip() for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.wait()
    for line in found:
        took, _, text = line.partition(" ")
        assert float(took) < DEADLINE_S + 2, line
        assert "step " in text, line
