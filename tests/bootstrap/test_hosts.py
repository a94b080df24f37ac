"""Ranks on several hosts: network namespaces, joined by a pair of virtual interfaces."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hccc.runtime.bootstrap.rendezvous import library

_RANK = """
import json, os, select, sys
from hccc.runtime.bootstrap.rendezvous import environment, id_from_environment
from tests.bootstrap.client import BootstrapClient
me = environment()
with BootstrapClient(id_from_environment(me.rank), me.n_ranks, me.rank, 20) as b:
    shared = b.share([0])
    b.barrier()
    hosts = [b.host(r) for r in range(me.n_ranks)]
    print(json.dumps([hosts, [fd >= 0 for [fd] in shared]]), flush=True)
    select.select([b], [], [], 20)
    print(json.dumps(b.departure()), flush=True)
"""


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True).returncode == 0


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Yields two network namespaces, 10.77.0.1 and 10.77.0.2."""
    names = [f"hccc{os.getpid()}{letter}" for letter in "ab"]
    try:
        if not shutil.which("ip") or not all(_ip("netns", "add", name) for name in names):
            pytest.skip("no network namespaces can be made here")
        made = [f"v{name}" for name in names]
        if not _ip(
            "link",
            "add",
            made[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            made[1],
            "netns",
            names[1],
        ):
            pytest.skip("no virtual interfaces can be made here")
        for i, name in enumerate(names):
            assert _ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", made[i])
            assert _ip("-n", name, "link", "set", made[i], "up")
            assert _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            _ip("netns", "del", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, {"HCCC_BIND": "0.0.0.0"}, {"HCCC_SOCKET_IFNAME": "vhccc"}],
    ids=["address", "any", "interface"],
)
def test_ranks_of_two_hosts(hosts: list[str], more: dict[str, str]) -> None:
    library()
    said = {"HCCC_NRANKS": "3", "HCCC_ROOT": "10.77.0.1:7777", "HCCC_SECRET": "s" * 32} | more
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", hosts[0 if rank == 0 else 1], sys.executable, "-c", _RANK],
            env=os.environ | said | {"HCCC_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        got = [_line(rank) for rank in ranks]
        assert got == [[[0, 1, 1], [r == 0, r != 0, r != 0]] for r in range(3)]
        ranks[1].send_signal(signal.SIGKILL)
        assert [_line(ranks[r]) for r in (0, 2)] == [[1, False]] * 2
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def _line(rank: subprocess.Popen[str]) -> object:
    """Reads the next line that a rank prints."""
    assert rank.stdout
    assert select.select([rank.stdout], [], [], 20)[0], "a rank says nothing"
    return json.loads(rank.stdout.readline())
