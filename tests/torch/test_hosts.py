"""hccc.torch over two hosts, network namespaces, told nothing but torchrun's variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import benchmarks.namespaces as namespaces
from hccc.runtime.transport.ucx_transport import available
from tests.torch.job import ROOT, needs_torch

pytestmark = [pytest.mark.slow, needs_torch]
RANKS = 4


def test_groups_meet_across_hosts() -> None:
    usable, text = available()
    if why := namespaces.missing() or ("" if usable else text):
        pytest.skip(why)
    with namespaces.hosts(2, "1gbit") as hosts:
        ranks = []
        for rank in range(RANKS):
            host = hosts[rank // 2]
            variables = {
                "MASTER_ADDR": hosts[0].address,
                "MASTER_PORT": "29411",
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": "2",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % 2),
                "HCCC_HOST_ID": host.namespace,
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            }
            command = [*host.before(), sys.executable, "-m", "tests.torch.apart"]
            ranks.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        try:
            found = [one.communicate(timeout=240) for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.wait()
    for rank, (out, err) in enumerate(found):
        wanted = [f"around {(rank - 1) % RANKS}"]
        if rank in (0, RANKS - 1):
            wanted.append(f"group {RANKS - 1 - rank}")
        assert out.splitlines() == wanted, f"rank {rank}: {out}{err}"
