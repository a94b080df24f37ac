"""Two ranks of a communicator on one GPU, as processes and as threads.

Processes share its memory by every kind of handle that it has; threads run at the same time.
Processes of one GPU take turns of milliseconds, so a kernel that waits for the other's costs such a
turn: they are for the results, and threads for the times.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.errors import check
from hccc.runtime.communicator.runtime_library import library as runtime
from hccc.runtime.device.device_layer import library as device
from hccc.runtime.device.device_layer import use

RANKS, DTYPE, OP = 2, 2, 0  # int32, sums: of any order the same
KINDS = {1: "legacy", 2: "descriptor", 4: "fabric"}
PROCESS_TIMEOUT_S, WAIT_S = 120, "20"
KILLED_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class SharedResult:
    """Two ranks: how they were hosted, bytes of a rank's block, and µs of a call, 0 where it was
    not timed."""

    ranks: str
    size: int
    time: float
    right: bool
    note: str = ""


def kinds_of(number: int = 0) -> list[str]:
    """Returns the kinds of handles of a device's memory."""
    found = ctypes.c_uint()
    device().call("ExtGetHandleKinds", ctypes.byref(found), number)
    return [name for bit, name in KINDS.items() if found.value & bit]


def _copy(to: Any, source: Any, size: int, kind: int) -> None:
    device().call("Memcpy", to, source, size, kind)


class Buffers:
    """What a rank sends and receives, in memory of hcccMemAlloc."""

    def __init__(self, rank: int, count: int) -> None:
        self.count, self.size = count, 4 * count
        self.send, self.receive = (ctypes.c_void_p() for _ in range(2))
        for pointer in (self.send, self.receive):
            check(runtime().call("MemAlloc", ctypes.byref(pointer), self.size))
        own = self.pattern(rank)  # lives until it is copied
        _copy(self.send, own.ctypes.data, self.size, 1)

    def pattern(self, rank: int) -> np.ndarray[Any, Any]:
        """Returns what a rank sends."""
        return (np.arange(self.count, dtype=np.int32) * 31 + rank * 7919) % 100_003

    def right(self) -> bool:
        """Returns whether all of the result is the sum."""
        found = np.empty(self.count, np.int32)
        _copy(found.ctypes.data, self.receive, self.size, 2)
        return np.array_equal(found, sum(self.pattern(r) for r in range(RANKS)))

    def free(self) -> None:
        """Gives the memory back."""
        for pointer in (self.send, self.receive):
            check(runtime().call("MemFree", pointer))


def _stream() -> int:
    made = ctypes.c_void_p()
    device().call("StreamCreateWithFlags", ctypes.byref(made), 1)
    return made.value or 0


def measured(
    c: Communicator, name: str, size: int, launches: int, stream: int
) -> tuple[float, bool]:
    """Measures the calls of one rank, while the other does so, too.

    Returns the µs of a call, and whether the results were right.
    """
    buffers = Buffers(c.rank, max(1, size // 4))
    words = (buffers.send, buffers.receive, buffers.count, DTYPE, OP, c.handle, stream)
    check(runtime().call("AllReduce", *words))
    device().call("StreamSynchronize", stream)
    right, started = buffers.right(), time.perf_counter()
    for _ in range(launches):
        check(runtime().call("AllReduce", *words))
    device().call("StreamSynchronize", stream)
    taken = (time.perf_counter() - started) / max(1, launches) * 1e6
    c.check()
    right = right and buffers.right()
    buffers.free()
    return taken if launches else 0.0, right


def _joined(name: str, sizes: Sequence[int], ranks: Sequence[Any]) -> list[SharedResult]:
    """Returns the longest of the ranks' times for each size, or for the first of them."""
    return [
        SharedResult(name, size, max(t for t, _ in times), all(right for _, right in times))
        for size, times in zip(sizes, zip(*ranks, strict=False), strict=False)
    ]


def as_threads(
    platform: str, file: Path, sizes: Sequence[int], launches: int
) -> list[SharedResult]:
    """Runs both ranks in this process, each with a thread and a stream."""
    use(platform)
    found: list[list[tuple[float, bool]]] = [[] for _ in range(RANKS)]
    ranks = Communicator.init_all(RANKS, [0] * RANKS)

    def body(c: Communicator) -> None:
        use(platform)
        c.load(file)
        stream = _stream()
        for size in sizes:
            found[c.rank].append(measured(c, "threads", size, launches, stream))

    threads = [threading.Thread(target=body, args=(c,)) for c in ranks]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    notes = {c.error.name.lower() for c in ranks if c.error is not Result.SUCCESS}
    for c in ranks:
        (c.abort if notes else c.destroy)()
    rows = _joined("threads", sizes, found)
    if len(rows) < len(sizes) or notes:
        rows.append(
            SharedResult("threads", 0, 0, False, ", ".join(sorted(notes)) or "a rank failed")
        )
    return rows


def as_processes(
    platform: str, file: Path, kind: str, sizes: Sequence[int], launches: int, *, dies: bool = False
) -> list[SharedResult]:
    """Runs each rank as a process. dies: the second is killed while the first waits for it."""
    job = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),  # carried packages, too
        "HCCC_NRANKS": str(RANKS),
        "HCCC_JOB": uuid.uuid4().hex,
        "HCCC_PLATFORM": platform,
        "HCCC_HANDLES": kind,
        "HCCC_TIMEOUT": WAIT_S,
    }
    what = json.dumps(
        {
            "platform": platform,
            "file": str(file),
            "sizes": list(sizes),
            "launches": launches,
            "dies": dies,
        }
    )
    command = [sys.executable, "-m", "benchmarks.gpu.communicators", what]
    started = [
        subprocess.Popen(
            command, env={**job, "HCCC_RANK": str(r)}, stdout=subprocess.PIPE, text=True
        )
        for r in range(RANKS)
    ]
    name = f"processes, {kind}"
    try:
        outs = [one.communicate(timeout=PROCESS_TIMEOUT_S)[0] for one in started]
    except subprocess.TimeoutExpired:
        return [SharedResult(name, 0, 0, False, f"not done within {PROCESS_TIMEOUT_S} s")]
    finally:
        for one in started:
            one.kill()
            one.wait()
    told = [json.loads(out.splitlines()[-1]) if out.strip() else None for out in outs]
    if dies:
        first = told[0] or {}
        right = first.get("result") == "REMOTE_ERROR"
        return [SharedResult(f"{name}, one killed", 0, 0, right, str(first.get("text", "")))]
    if any(one is None for one in told):
        return [SharedResult(name, 0, 0, False, "a rank failed")]
    return _joined(name, sizes, told)


def waited_in_vain(c: Communicator, stream: int) -> dict[str, Any]:
    """Lets rank 1 be killed while rank 0 waits for it; returns rank 0's result and error text."""
    if c.rank:
        time.sleep(KILLED_AFTER_S)
        os.kill(os.getpid(), signal.SIGKILL)
    buffers = Buffers(c.rank, 1024)
    words = (buffers.send, buffers.receive, buffers.count, DTYPE, OP, c.handle, stream)
    started, result = time.monotonic(), runtime().call("AllReduce", *words)
    while c.error is Result.SUCCESS and time.monotonic() - started < float(WAIT_S):
        time.sleep(0.01)
    device().call("StreamSynchronize", stream)  # the kernel has left
    try:
        c.check()
        text = ""
    except Exception as error:
        text = str(error)
    return {"result": c.error.name, "text": text, "called": result}


def _rank(what: dict[str, Any]) -> Any:
    """Runs one rank, the body of a process; returns what it measured."""
    use(what["platform"])
    c = Communicator.from_environment()
    c.load(Path(what["file"]))
    stream = _stream()
    if what["dies"]:
        return waited_in_vain(c, stream)
    rows = [measured(c, "processes", size, what["launches"], stream) for size in what["sizes"]]
    c.destroy()
    return rows


def all_of(
    platform: str, file: Path, small: Sequence[int], sizes: Sequence[int], launches: int
) -> list[SharedResult]:
    """Runs processes by every kind of handle with the small sizes, one that is killed, then
    threads.

    Threads run all sizes.
    """
    use(platform)
    rows: list[SharedResult] = []
    for kind in kinds_of():
        rows += as_processes(platform, file, kind, small, min(launches, 5))
    rows += as_processes(platform, file, kinds_of()[-1], (), 0, dies=True)
    os.environ["HCCC_PLATFORM"] = platform
    return rows + as_threads(platform, file, sizes, launches)


if __name__ == "__main__":
    print(json.dumps(_rank(json.loads(sys.argv[1]))))
