"""Ranks of several hosts: HCCC_HOST_ID divides this host's ranks into hosts, joined by UCX."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.driver.options import Options
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.kernels import built
from hccc.runtime.device.stream import Stream
from hccc.runtime.transport.ucx_transport import available
from tests.communicator.conftest import Library
from tests.communicator.test_faults import OTHERS, _nothing, _sum, wait_until_joined
from tests.communicator.test_memory import check_counts, descriptors_and_threads
from tests.communicator.test_uneven import differing, random_calls
from tests.communicator.world import Lost, loaded, start
from tests.emit import plans
from tests.marks import slow

NO_MAKER = {"HCCC_STANDARD": "1", "HCCC_COMMAND": "/nowhere/hccc"}
HOSTS = {"UCX_TLS": "tcp,self", "HCCC_NETWORK": "lo"}  # as between hosts


@pytest.fixture(autouse=True)
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an AllReduce over two nodes of two ranks."""
    program = plans.hierarchical_mesh(2, 2, channels=2)
    place = tmp_path_factory.mktemp("hosts") / "kernels"
    api.write(api.compile(program, Options(tune="off")), place)
    built(place, ["float32", "int32"], ["sum", "max"])
    return place


@pytest.fixture(scope="session")
def four(library: Library) -> Path:
    """Builds an AllReduce of four ranks of one host."""
    return library(plans.compiled(plans.mesh_allreduce(4)))


def on_hosts(rank: int) -> dict[str, str]:
    return {**HOSTS, "HCCC_HOST_ID": f"host{rank // 2}"}


def sums(communicator: Communicator, place: Path) -> bool:
    """Checks sums of data that differ by call: late data would be the previous call's."""
    c, n = loaded(communicator, place), communicator.n_ranks
    for call in range(60):
        count = (1000, 70_001, 3)[call % 3]
        shared = bool(call % 2)
        x = c.empty(count, "int32") if shared else np.empty(count, np.int32)
        x[:] = np.arange(count) * (c.rank + 1) + call
        y = np.zeros_like(x)
        c.all_reduce(x, y)
        assert (y == np.arange(count) * (n * (n + 1) // 2) + n * call).all(), call
        c.all_reduce(x)
        assert np.array_equal(x, y)
    return True


@pytest.mark.slow
def test_threads_of_a_communicator_of_two_hosts() -> None:
    """Each rank has the transport's thread and one more, rank 0 too."""
    found = start(4, descriptors_and_threads, of_rank=on_hosts).outcomes()
    check_counts([found[rank] for rank in range(4)], most_threads=2, most_descriptors=None)


def test_sums_over_two_hosts(apart: Path) -> None:
    found = start(4, sums, apart, of_rank=on_hosts).outcomes()
    assert set(found.values()) == {True}


@pytest.fixture(scope="session")
def blocks_apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds an Alltoallv over two nodes of two ranks."""
    program = plans.alltoall(4)
    c = replace(program.collective, uneven=True)
    program = replace(program, name="blocks", collective=c, gpus_per_node=2)
    place = tmp_path_factory.mktemp("blocks") / "kernels"
    api.write(api.compile(program, Options(tune="off")), place)
    built(place, ["int32"], ["sum"])
    return place


def blocks(communicator: Communicator, place: Path) -> str:
    """Makes calls of any lengths within and between hosts; returns the error of one with lengths
    that differ, after which a right one works."""
    assert random_calls(communicator, place, "all_to_all", 3, 20)
    return differing(communicator, place, "all_to_all")


@pytest.mark.slow
def test_blocks_over_two_hosts(blocks_apart: Path) -> None:
    found = start(4, blocks, blocks_apart, of_rank=on_hosts).outcomes()
    texts = {text.split(", call ")[1] for text in found.values()}
    assert texts == {"23: rank 2 sends 9 elements to rank 0, which receives 19 from it"}


def any_message(communicator: Communicator, place: Path) -> int:
    """Receives any message while other ranks are in an uneven call by now."""
    c, ones = loaded(communicator, place), [1] * 4
    x, got = np.full(4, c.rank, np.int32), np.zeros(4, np.int32)
    source = -1
    if c.rank == 2:
        time.sleep(0.5)
        c.send(x, 3)
    elif c.rank == 3:
        source = c.recv(got, None, None).source
    c.all_to_all_v(x, got, ones, ones)
    assert (got == np.arange(4)).all()
    return source


@pytest.mark.slow
def test_no_receive_takes_what_an_uneven_call_tells(blocks_apart: Path) -> None:
    found = start(4, any_message, blocks_apart, of_rank=on_hosts).outcomes()
    assert found == {0: -1, 1: -1, 2: -1, 3: 2}


def other_host(communicator: Communicator, *places: Path) -> list[str]:
    """Makes even and uneven calls at once, one rank's the other, and right calls behind them."""
    c = loaded(communicator, *places)
    x, ones = np.empty(4, np.int32), [1] * 4
    texts = []
    for turn in range(4):
        with pytest.raises(CommunicatorError) as caught:
            if (c.rank == turn) == (turn % 2 == 0):
                c.all_reduce(x)
            else:
                c.all_to_all_v(x, x.copy(), ones, ones)
        assert c.error is Result.SUCCESS
        texts.append(caught.value.text)
        x[:] = 10 * c.rank + np.arange(4)
        got = np.empty(4, np.int32)
        c.all_to_all_v(x, got, ones, ones)
        assert (got == 10 * np.arange(4) + c.rank).all()
        c.all_reduce(x)
        assert (x == 60 + 4 * np.arange(4)).all()
    return texts


@pytest.mark.slow
def test_a_rank_that_calls_something_else(blocks_apart: Path, apart: Path) -> None:
    found = start(4, other_host, blocks_apart, apart, of_rank=on_hosts).outcomes()
    assert len({tuple(texts) for texts in found.values()}) == 1, found
    for text in found[0]:
        assert "calls Allreduce of 4 int32" in text and "calls Alltoallv of int32" in text, text


def other_calls(communicator: Communicator, place: Path) -> list[str]:
    """Makes another call at one rank, several times, and right ones behind each. A call of nothing
    has not to wait for others: its rank is told by its next one."""
    c = loaded(communicator, place)
    x = c.empty(70_001)
    texts = []
    for turn, other in enumerate((*OTHERS, _nothing)):
        if mine := c.rank == turn and other is _nothing:
            c.all_reduce(x[:0])
        with pytest.raises(CommunicatorError) as caught:
            (other if c.rank == turn and not mine else _sum)(c, x)
        assert c.error is Result.SUCCESS and caught.value.result is Result.INVALID_USAGE
        texts.append(caught.value.text)
        for _ in range(3):
            x[:] = c.rank
            c.all_reduce(x)
            assert (x == 6).all()
    return texts


@pytest.mark.slow
def test_another_call_at_one_rank_costs_nothing(apart: Path) -> None:
    found = start(4, other_calls, apart, of_rank=on_hosts).outcomes()
    assert len({tuple(texts) for texts in found.values()}) == 1, found
    for text, said in zip(found[0], (*OTHERS.values(), "of 0 float32"), strict=True):
        assert said in text and "Allreduce of 70001 float32 (sum)" in text, text


def other_calls_in_streams(communicator: Communicator, place: Path) -> bool:
    c = loaded(communicator, place)
    x = c.empty(70_001)
    with Stream() as stream:
        for turn in range(3):
            c.all_reduce(x[: 70_000 + (c.rank == turn)], stream=stream)
            stream.synchronize()
            with pytest.raises(CommunicatorError, match="70001 float32"):
                c.check()
            x[:] = c.rank
            c.all_reduce(x, stream=stream)
            stream.synchronize()
            c.check()
            assert (x == 6).all()
    return True


@pytest.mark.slow
def test_another_call_in_a_stream_costs_nothing(apart: Path) -> None:
    found = start(4, other_calls_in_streams, apart, of_rank=on_hosts).outcomes()
    assert found == dict.fromkeys(range(4), True)


def without_library(communicator: Communicator, place: Path) -> list[str]:
    """Makes a call that has no library at one rank, where the others' call has one."""
    c = loaded(communicator, place)
    x, texts = c.empty(10), []
    for turn in (3, 0):
        with pytest.raises(CommunicatorError) as caught:
            if c.rank == turn:
                c.all_gather(x, np.empty(40, np.float32))
            else:
                c.all_reduce(x)
        assert c.error is Result.SUCCESS
        texts.append(caught.value.text)
        x[:] = c.rank
        c.all_reduce(x)
        assert (x == 6).all()
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, slow(2)])
def test_a_rank_whose_call_has_no_library(hosts: int, four: Path, apart: Path) -> None:
    place, of_rank = (apart, on_hosts) if hosts == 2 else (four, lambda rank: {})
    found = start(4, without_library, place, environment=NO_MAKER, of_rank=of_rank).outcomes()
    for texts in found.values():
        for text in texts:
            assert "calls Allgather of 10 float32 by no library yet" in text, text
            assert "calls Allreduce of 10 float32 (sum) in place by" in text, text


def listening(pid: int | str = "self") -> set[tuple[str, int]]:
    """Returns addresses and ports at which a process listens for connections over TCP."""
    of_process = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            of_process.add(os.readlink(file))
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in of_process:
            ip, port = words[1].split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(ip)[::-1]), int(port, 16)))
    return found


def ports(communicator: Communicator) -> set[tuple[str, int]]:
    return listening()


@pytest.mark.slow
def test_ucx_listens_where_the_ranks_have_met() -> None:
    """Which is a loopback address here: no other interface of this machine has its ports."""
    found = start(
        2, ports, of_rank=lambda rank: {"UCX_TLS": "tcp,self", "HCCC_HOST_ID": str(rank)}
    ).outcomes()
    for addresses in found.values():
        assert addresses and all(ip.startswith("127.") for ip, _ in addresses), found


@pytest.mark.slow
def test_ranks_of_one_host_listen_nowhere() -> None:
    assert start(2, ports).outcomes() == {0: set(), 1: set()}


def many_calls(communicator: Communicator, place: Path, joined: Path) -> Any:
    c = loaded(communicator, place)
    x = c.empty(10_000)
    (joined / str(c.rank)).touch()
    try:
        for _ in range(400):
            c.all_reduce(x)
            time.sleep(0.005)
    except CommunicatorError as error:
        return Lost(error.result, error.text, 0)
    return True


@pytest.mark.slow
def test_a_stranger_at_the_port_of_ucx(apart: Path, tmp_path: Path) -> None:
    """Where it ends a rank, as UCX 1.13 does, the others are told that it was UCX."""
    world = start(4, many_calls, apart, tmp_path, of_rank=on_hosts)
    wait_until_joined(tmp_path, 4)
    nonsense = struct.pack("<QBI", 0xCAFEBABE12345678, 0, 0x40000000) + b"x" * 5
    for at in listening(world.processes[0].pid or 0):
        with socket.create_connection(at) as stranger:
            stranger.send(nonsense)
            time.sleep(0.2)
    for lost in world.outcomes(silent=[0]).values():
        assert lost is True or "rank 0: UCX has ended its process" in lost.text, lost


@pytest.mark.slow
def test_memory_that_hosts_do_not_share(library: Library) -> None:
    """A library that takes all ranks to share memory is refused."""
    place = library(plans.compiled(plans.mesh_allreduce(4)))
    found = start(4, sums, place, of_rank=on_hosts).outcomes()
    assert all("on different hosts" in one.text for one in found.values())


def until_lost(communicator: Communicator, place: Path) -> Any:
    c = loaded(communicator, place)
    x = c.empty(10_000)
    started = time.monotonic()
    try:
        for call in range(1_000_000):
            if c.rank == 3 and call == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            c.all_reduce(x)
    except CommunicatorError as error:
        return Lost(error.result, error.text, time.monotonic() - started)
    return None


@pytest.mark.slow
def test_a_rank_of_another_host_dies(apart: Path) -> None:
    found = start(4, until_lost, apart, of_rank=on_hosts).outcomes(silent=[3])
    for lost in found.values():
        assert lost.result is Result.REMOTE_ERROR and "rank 3" in lost.text, lost.text
        assert lost.seconds < 5
