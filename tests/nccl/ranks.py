"""Two ranks in one thread of a process of its own, through libnccl.so.2: what a case returns is
printed by `python -m tests.nccl.ranks CASE`."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hccc.runtime.communicator.runtime_library import UniqueId
from hccc.runtime.nccl.library import NAMES, folder

ROOT = Path(__file__).parents[2]
RANKS = 2
INT32, FLOAT32, SUM, IMMEDIATE = 2, 7, 0, 1


def run(case: str, **variables: str) -> tuple[Any, str]:
    """Returns what a case returns in a process with these variables, and its standard error."""
    preload = str(folder() / NAMES[0])
    base = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "LD_PRELOAD": preload, "HCCC_TIMEOUT": "20"}
    words = [sys.executable, "-m", "tests.nccl.ranks", case]
    environment = {**os.environ, **base, **variables}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), ended.stderr


class Calls:
    """NCCL's functions, by their names without the prefix. Each result but success is kept."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(NAMES[0])
        self._library.ncclGetLastError.restype = ctypes.c_char_p
        self.errors: list[tuple[int, str]] = []

    def call(self, name: str, *arguments: object) -> int:
        """Calls a function."""
        result: int = getattr(self._library, f"nccl{name}")(*arguments)
        if result:
            text: bytes = self._library.ncclGetLastError(None)
            self.errors.append((result, text.decode()))
        return result

    def communicators(self) -> Sequence[ctypes.c_void_p]:
        """Makes one for each rank, each of a device of its own."""
        made = (ctypes.c_void_p * RANKS)()
        self.call("CommInitAll", made, RANKS, None)
        return [ctypes.c_void_p(one) for one in made]

    def each(self, call: Callable[[int], tuple[object, ...]]) -> None:
        """Makes a call of every rank, in a group."""
        self.call("GroupStart")
        for rank in range(RANKS):
            self.call(*call(rank))  # type: ignore[arg-type]
        self.call("GroupEnd")


def _sums(calls: Calls, comms: Sequence[ctypes.c_void_p], n: int, op: int = SUM) -> Any:
    """Returns the results of an AllReduce, by rank."""
    arrays = [np.full(n, rank + 1, np.float32) for rank in range(RANKS)]
    at = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    size = ctypes.c_size_t(n)
    calls.each(lambda r: ("AllReduce", at[r], at[r], size, FLOAT32, op, comms[r], None))
    return [array.tolist() for array in arrays]


def sums() -> Any:
    """Adds four elements."""
    calls = Calls()
    comms = calls.communicators()
    found = _sums(calls, comms, 4) if comms[0] else None
    for comm in comms:
        calls.call("CommDestroy", comm)
    return {"found": found, "errors": calls.errors}


def lengths() -> Any:
    """Adds three elements, four twice, and five; returns the first and the last of four."""
    calls = Calls()
    comms = calls.communicators()
    found = [
        [all[0], all[min(3, n - 1)]] for n in (3, 4, 4, 5) for all in _sums(calls, comms, n)[1:]
    ]
    return {"found": found, "errors": calls.errors}


def ways() -> Any:
    """Makes calls that a vendor's library makes, and one that it has not."""
    calls = Calls()
    comms = calls.communicators()
    x = np.ones(8, np.float32)
    at, size = ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(4)
    calls.each(lambda r: ("Broadcast", at, at, size, FLOAT32, 1, comms[r], None))
    op = ctypes.c_int()
    for comm in comms:
        scalar = ctypes.byref(ctypes.c_float(2))
        calls.call("RedOpCreatePreMulSum", ctypes.byref(op), scalar, FLOAT32, IMMEDIATE, comm)
    own = _sums(calls, comms, 4, op.value)
    refused = _sums(calls, comms, 3)
    gathered = calls.call("Gather", at, at, size, FLOAT32, 0, comms[0], None)
    return {
        "broadcast": x[:4].tolist(),
        "own": [op.value, own],
        "refused": len(refused),
        "gather": gathered,
        "errors": calls.errors,
    }


def device() -> Any:
    """Adds integers in memory of a device, and asks for what it has no kernels for."""
    calls = Calls()
    comms = calls.communicators()
    at = [ctypes.c_void_p() for _ in comms]
    size = ctypes.c_size_t(4)
    for one in at:
        calls.call("MemAlloc", ctypes.byref(one), size.value * 4)
    memory = [(ctypes.c_int32 * size.value).from_address(one.value or 0) for one in at]
    for rank, words in enumerate(memory):
        words[:] = [rank + 1] * size.value
    calls.each(lambda r: ("AllReduce", at[r], at[r], size, INT32, SUM, comms[r], None))
    cuda = ctypes.CDLL(os.environ["HCCC_CUDA_LIBRARY"])
    for rank in range(RANKS):
        cuda.cudaSetDevice(rank)
        cuda.cudaDeviceSynchronize()
    found = [list(words) for words in memory]
    calls.each(lambda r: ("Broadcast", at[r], at[r], size, INT32, 0, comms[r], None))
    broadcast = np.ctypeslib.as_array(memory[1]).view(np.float32).tolist()
    calls.call("GroupStart")
    for r in range(RANKS):
        calls.call("Send", at[r], size, INT32, 1 - r, comms[r], None)
        calls.call("Recv", at[r], size, INT32, 1 - r, comms[r], None)
    calls.call("GroupEnd")
    received = np.ctypeslib.as_array(memory[1]).view(np.float32).tolist()
    for comm in comms:
        calls.call("CommDestroy", comm)
    told = {"found": found, "broadcast": broadcast, "received": received}
    return told | {"errors": calls.errors}


def lost() -> Any:
    """Aborts rank 1's communicator while rank 0 waits in a call, and asks what rank 0's says."""
    calls = Calls()
    first, second = calls.communicators()
    x = np.ones(4, np.float32)
    at, size = ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(4)
    threading.Timer(0.3, calls.call, ("CommAbort", second)).start()
    result = calls.call("AllReduce", at, at, size, FLOAT32, SUM, first, None)
    asynchronous = ctypes.c_int()
    calls.call("CommGetAsyncError", first, ctypes.byref(asynchronous))
    calls.call("CommAbort", first)
    return {"results": [result, asynchronous.value], "errors": calls.errors}


def named_by_one() -> Any:
    """Makes a communicator of two processes of which one names a vendor's library."""
    reads, writes = os.pipe()
    rank = 1 if os.fork() else 0
    if rank == 0:
        os.environ["HCCC_NCCL_FALLBACK"] = os.environ["OF_ONE"]
    calls = Calls()
    id_ = UniqueId()
    if rank == 0:
        calls.call("GetUniqueId", ctypes.byref(id_))
        os.write(writes, bytes(id_))
    else:
        id_ = UniqueId.from_buffer_copy(os.read(reads, ctypes.sizeof(id_)))
    comm = ctypes.c_void_p()
    calls.call("CommInitRank", ctypes.byref(comm), RANKS, id_, rank)
    assert not comm and len(calls.errors) == 1
    if rank == 0:
        os.write(writes, json.dumps(calls.errors).encode())
        os._exit(0)
    os.wait()
    return [*json.loads(os.read(reads, 4096)), *calls.errors]


if __name__ == "__main__":
    cases = {one.__name__: one for one in (sums, lengths, ways, device, lost, named_by_one)}
    print(json.dumps(cases[sys.argv[1]]()))
