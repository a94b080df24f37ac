"""Buffers that are registered, and arrays of other libraries than NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from tests.communicator.world import alone, in_threads, loaded, run, start
from tests.marks import slow

COUNT = 4096


def refusal(c: Communicator, name: str, *arguments: Any) -> Result:
    with pytest.raises(CommunicatorError) as caught:
        c._call(name, *arguments)
    return caught.value.result


def registered() -> bool:
    (c,) = Communicator.init_all(1)
    x, out = c.empty(COUNT), ctypes.c_void_p()
    at, bytes = x.ctypes.data, x.nbytes

    def refused(name: str, *arguments: Any) -> None:
        assert refusal(c, name, *arguments) is Result.INVALID_ARGUMENT, arguments

    first = c.register(x)
    assert c.register(x) == first
    other = c.register(np.zeros(10))
    for begin, length in [(at + 4, 8), (at - 4, 8), (at, 8), (at, bytes + 8), (at - 8, bytes + 16)]:
        refused("CommRegister", begin, length, ctypes.byref(out))
    c._call("CommRegister", at + bytes, 8, ctypes.byref(out))  # the bytes behind overlap nothing
    for begin, length in [(0, 8), (at, 0), (at, 2**64 - 1), (1 << 46, 8)]:
        refused("CommRegister", begin, length, ctypes.byref(out))
    c.deregister(first)
    refused("CommRegister", at + 4, 8, ctypes.byref(out))  # it was registered twice
    c.deregister(first)
    for handle in (first, 12345, None):
        refused("CommDeregister", handle)
    assert c.register(x[1:3]) not in (first, other) and c.error is Result.SUCCESS
    return True


def test_ranges_that_are_registered() -> None:
    assert alone(registered)


def told(communicator: Communicator, sums: Path) -> bool:
    c = loaded(communicator, sums)
    for x in (c.empty(COUNT), np.zeros(COUNT, np.float32)):
        handle = c.register(x)
        x[:] = c.rank + 1
        c.all_reduce(x)
        assert (x == 6).all()
        c.deregister(handle)
    return True


def test_how_a_buffer_is_reached_can_be_read(sums: Path, tmp_path: Path) -> None:
    log = {
        "HCCC_DEBUG": "INFO",
        "HCCC_DEBUG_SUBSYS": "MEM",
        "HCCC_DEBUG_FILE": str(tmp_path / "%p"),
    }
    start(3, told, sums, environment=log).outcomes()
    for path in tmp_path.iterdir():
        ours, theirs = [
            line for line in path.read_text().splitlines() if " are registered, " in line
        ]
        assert "of hcccMemAlloc: peers reach it, nothing is copied" in ours
        assert "not of hcccMemAlloc: calls copy it" in theirs


class InterfaceOnly:
    """An array of a library that has the array interface only."""

    def __init__(self, of: np.ndarray[Any, Any]) -> None:
        self.of = of

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.of.__array_interface__


class DlpackOnly:
    """A tensor of a library that has DLPack only."""

    def __init__(self, of: np.ndarray[Any, Any]) -> None:
        self.of = of

    def __dlpack__(self, **how: Any) -> Any:
        return self.of.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.of.__dlpack_device__()


class OnGpu:
    """A tensor in memory of a GPU."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "typestr": "<f4",
        "data": (0x7F0000000000, False),
        "shape": (COUNT,),
        "version": 3,
    }


def others(communicator: Communicator, sums: Path) -> list[str]:
    c = loaded(communicator, sums)
    for kind in (InterfaceOnly, DlpackOnly):
        x, y = (np.full(COUNT, c.rank + k, np.int32) for k in range(2))
        c.all_reduce(kind(x), kind(y))
        assert (y == 3).all()
        c.all_reduce(kind(x))
        assert (x == 3).all()
        c.run("mesh", kind(x), kind(y), COUNT)
        assert (y == 9).all()
    frozen = np.zeros(COUNT, np.float32)
    frozen.flags.writeable = False
    x = np.zeros(COUNT, np.float32)
    texts = []
    wrongs: list[Callable[[], None]] = [
        lambda: c.all_reduce(OnGpu()),
        lambda: c.all_reduce(x, OnGpu()),
        lambda: c.run("mesh", OnGpu(), x, COUNT),
        lambda: c.all_reduce(frozen),
        lambda: c.all_reduce([1, 2]),
    ]
    for wrong in wrongs:
        with pytest.raises(UserError) as caught:
            wrong()
        texts.append(str(caught.value))
    c.all_reduce(frozen, x)
    return texts


@pytest.mark.parametrize("everywhere", [in_threads, slow(run)])
def test_arrays_of_other_libraries(sums: Path, everywhere: Any) -> None:
    for send, receive, named, frozen, none in everywhere(3, others, sums):
        assert "send is in memory of device 0 of CUDA" in send and "AllReduce" in send
        assert "receive is in memory of device 0 of CUDA" in receive
        assert "mesh: send is in memory" in named
        assert "read-only" in frozen and "is no array" in none


def torch_tensors(communicator: Communicator, sums: Path) -> bool:
    torch = pytest.importorskip("torch")
    c = loaded(communicator, sums)
    x = torch.full((COUNT,), c.rank + 1, dtype=torch.int32)
    c.all_reduce(x)
    return bool((x == 6).all())


@pytest.mark.slow
def test_tensors_of_pytorch(sums: Path) -> None:
    pytest.importorskip("torch")
    assert in_threads(3, torch_tensors, sums) == [True] * 3
