"""Splits of a communicator over hosts that reach each other by their addresses alone."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys

import numpy as np
import pytest

import benchmarks.namespaces as namespaces
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import build, library
from tests.communicator.test_hosts import listening

RANKS = 4


def rank() -> None:
    """Splits by parity, last rank first, and each part again by host; prints the ranks of both."""
    with Communicator.from_environment() as c:
        across = c.split(c.rank % 2, -c.rank)
        near = c.split(c.rank // 2)
        assert across and near
        told = [_members(one, c.rank) for one in (across, near)]
        print(told, sorted({ip for ip, _ in listening()}), flush=True)
        near.destroy()
        across.destroy()


def _members(c: Communicator, value: int) -> list[int]:
    """Returns the values of all ranks of a communicator."""
    each = np.zeros(c.n_ranks, np.int64)
    each[c.rank] = value
    check(library().call("CommGatherBytes", c.handle, each.ctypes.data, each.itemsize))
    return [int(x) for x in each]


@pytest.mark.slow
def test_parts_meet_across_hosts() -> None:
    """Nothing says which interface: the root of a part listens where its rank is reached, and only
    on loopback where a part is on one host."""
    if why := namespaces.missing():
        pytest.skip(why)
    build()
    with namespaces.hosts(2, "1gbit") as hosts:
        said = {
            **os.environ,
            "HCCC_JOB": secrets.token_hex(8),
            "HCCC_NRANKS": str(RANKS),
            "HCCC_TIMEOUT": "20",
            "HCCC_ROOT": f"{hosts[0].address}:{20000 + random.randrange(10000)}",
            "HCCC_SECRET": secrets.token_hex(16),
            "UCX_TLS": "tcp,self",
        }
        command = [
            sys.executable,
            "-c",
            "from tests.communicator import test_split_hosts as t; t.rank()",
        ]
        ranks = [
            subprocess.Popen(
                [*hosts[r // 2].before(), *command],
                env=said | {"HCCC_RANK": str(r), "HCCC_HOST_ID": hosts[r // 2].namespace},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for r in range(RANKS)
        ]
        try:
            found = [one.communicate(timeout=60) for one in ranks]
        finally:
            for one in ranks:
                one.kill()
                one.wait()
    for r, (out, err) in enumerate(found):
        across, near = [r % 2 + 2, r % 2], [r // 2 * 2, r // 2 * 2 + 1]
        assert out.startswith(f"[{across}, {near}]"), f"rank {r}: {out}{err}"
