"""Children of fork(): what they do with their parent's communicator costs it nothing."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
from hccc.runtime.communicator.communicator import Result
from tests.communicator.world import loaded, run

COUNT = 50_000
Act = Callable[[Communicator, Any], None]


def _leaves(c: Communicator, x: Any) -> None:
    c.destroy()
    assert "hccc-arena" not in Path("/proc/self/maps").read_text()


def _aborts(c: Communicator, x: Any) -> None:
    c.abort()


def _calls(c: Communicator, x: Any) -> None:
    for call in (lambda: c.all_reduce(x), c.finalize, c.check, lambda: c.register(x)):
        with pytest.raises(CommunicatorError, match="forked") as caught:
            call()
        assert caught.value.result is Result.INVALID_USAGE


def _frees(c: Communicator, x: Any) -> None:
    vars(c).update(_kept=None)
    del x
    gc.collect()


def _makes_its_own(c: Communicator, x: Any) -> None:
    with Communicator.join(unique_id(), 1, 0) as own:
        y = own.empty(COUNT)
        y[:] = 7
        assert own.n_ranks == 1 and own.error is Result.SUCCESS
    c.destroy()


def in_child(act: Act, c: Communicator, made: list[Any]) -> int:
    """Returns the exit code of a child that acts, and frees its parent's array."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        act(c, made.pop())
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{act.__name__}: {error!r}\n".encode())
    finally:
        os._exit(1)


def forked(communicator: Communicator, place: Path) -> bool:
    """Forks between calls, at every rank but the first."""
    c = loaded(communicator, place)
    x = c.empty(COUNT)
    threads = len(os.listdir("/proc/self/task"))
    for act in (_leaves, _aborts, _calls, _frees, _makes_its_own):
        x[:] = c.rank
        if c.rank:
            made = [x]
            del x
            assert in_child(act, c, made) == 0, act
            x = made.pop()
        assert (x == c.rank).all(), act
        c.all_reduce(x)
        assert (x == 3).all(), act
    until = time.monotonic() + 10  # threads of the last call, and of the beginning, may be ending
    while len(os.listdir("/proc/self/task")) > threads and time.monotonic() < until:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= threads
    return True


@pytest.mark.slow
def test_a_child_has_no_part_in_it(sums: Path) -> None:
    assert run(3, forked, sums) == [True] * 3
