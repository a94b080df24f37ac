"""hccc.torch over two hosts, network namespaces, told nothing but torchrun's variables."""

from __future__ import annotations

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
    command = [sys.executable, "-m", "tests.torch.apart"]
    with namespaces.hosts(2, "1gbit") as hosts:

        def of_torchrun(rank: int) -> dict[str, str]:
            return {
                "MASTER_ADDR": hosts[0].address,
                "MASTER_PORT": "29411",
                "WORLD_SIZE": str(RANKS),
                "LOCAL_WORLD_SIZE": "2",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % 2),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            }

        with namespaces.ranks_on(hosts, RANKS // 2, command, of_torchrun) as ranks:
            found = [one.communicate(timeout=240) for one in ranks]
    for rank, (out, err) in enumerate(found):
        wanted = [f"around {(rank - 1) % RANKS}"]
        if rank in (0, RANKS - 1):
            wanted.append(f"group {RANKS - 1 - rank}")
        assert out.splitlines() == wanted, f"rank {rank}: {out}{err}"
