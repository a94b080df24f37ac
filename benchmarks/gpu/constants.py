"""constants: the times of which estimates of calls are made: loads, fences, hops, launches.

One GPU cannot tell what crosses NVLink: its own memory stands for a peer's, so these are the least.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.measured_machine import GpuMachine, elapsed, stall
from benchmarks.gpu.paths import ROOT
from benchmarks.gpu.timing import Sample, summary

SOURCE = Path(__file__).with_name("constants.cu")
KERNEL, NOTHING = "constants", "nothing"
REACH, FAR = 1024, 64  # as in the kernel
STRIDE = 389  # from a word to the next that is read: another line, with no pattern of a page
ROOM = 64 << 10
RUNS = 7  # of each kind, of which the first warms up


@dataclass(frozen=True, slots=True)
class ConstantKind:
    """What is timed: in words, by how many threads of how many blocks, how often in a launch, and
    in how many parts one time of it is; apart: whether only a part of the loop is it."""

    name: str
    what: str
    threads: int = 32
    blocks: int = 1
    times: int = 2000
    parts: int = 1
    apart: bool = False


KINDS = (
    ConstantKind("LOAD", "a load of own memory that follows another (L2)"),
    ConstantKind("ACQUIRE", "the same, acquiring, of all devices: a poll"),
    ConstantKind("HOST_LOAD", "a load of the host's memory over PCI Express", times=500),
    ConstantKind("FENCE_GPU", "a fence of this GPU, behind nothing"),
    ConstantKind("FENCE_SYSTEM", "a fence of all devices, behind nothing"),
    ConstantKind("FENCE_4K", "the same, behind 4 KiB of stores", 512, times=500, apart=True),
    ConstantKind("FENCE_64K", "the same, behind 64 KiB", 512, times=500, apart=True),
    ConstantKind("BARRIER", "a barrier of 512 threads", 512),
    ConstantKind("HOP", "a flag from one block to another", blocks=2, parts=2),
)


@dataclass(frozen=True, slots=True)
class ConstantTime:
    """A constant and its µs."""

    what: str
    time: Sample


def options() -> list[str]:
    """Returns the compiler's options for SOURCE."""
    kinds = [f"-D{kind.name}={number}" for number, kind in enumerate(KINDS)]
    return [*kinds, f"-I{ROOT / 'runtime' / 'include'}"]


def command(arch: str, made: Path) -> list[str]:
    """Returns nvcc's command for a binary of SOURCE."""
    how = ["-std=c++17", "-O3", "-cubin", f"-arch={arch}"]
    return [shutil.which("nvcc") or "nvcc", *how, *options(), str(SOURCE), "-o", str(made)]


def carried_file(place: Path, arch: str) -> Path:
    """Returns the file of the kernel that prepare.py builds."""
    return place / f"constants-{arch}.cubin"


def cycle() -> np.ndarray[Any, Any]:
    """Returns the words of a kernel's chase, then its flags."""
    words = np.zeros(REACH + 2 * FAR, np.uint32)
    words[:REACH] = (np.arange(REACH) + STRIDE) % REACH
    return words


def reached(times: int) -> int:
    """Returns the word that so many loads end at."""
    return times * STRIDE % REACH


def one(kind: ConstantKind, out: np.ndarray[Any, Any]) -> float:
    """Returns the seconds of one, from what the kernel wrote: ns, cycles, cycles apart, index.

    Raises:
        ValueError: it did something else.
    """
    ns, cycles, apart, at = (int(x) for x in out)
    if kind.name in ("LOAD", "ACQUIRE", "HOST_LOAD") and at != reached(kind.times):
        raise ValueError(f"{kind.what}: it ended at {at}, not at {reached(kind.times)}")
    share = apart / cycles if kind.apart else 1.0
    return 1e-9 * ns * share / (kind.times * kind.parts)


class ConstantTimes:
    """The constants of one GPU."""

    def __init__(self, machine: GpuMachine, place: Path) -> None:
        self.device = machine.device
        self._cupy = machine.numpy
        built = carried_file(place, self.device.arch)
        if built.exists():
            module = self._cupy.RawModule(path=str(built))
        else:
            words = ("-std=c++17", *options())
            module = self._cupy.RawModule(code=SOURCE.read_text("utf-8"), options=words)
        self._kernel = module.get_function(KERNEL).kernel
        self._nothing = module.get_function(NOTHING).kernel

    def all(self) -> Iterator[ConstantTime]:
        """Yields every constant."""
        yield from (ConstantTime(kind.what, self.of(kind)) for kind in KINDS)
        yield from self.launches()

    def of(self, kind: ConstantKind) -> Sample:
        """Measures one constant in several launches."""
        cupy = self._cupy
        number, blocks = np.int32(KINDS.index(kind)), kind.blocks
        host = cupy.cuda.alloc_pinned_memory(4 * REACH)
        np.frombuffer(host, np.uint32, REACH)[:] = cycle()[:REACH]
        room, taken = cupy.zeros(ROOM, np.uint8), []
        for _ in range(RUNS):
            words, out = cupy.asarray(cycle()), cupy.zeros(4, np.uint64)
            pointers = (words.data.ptr, host.ptr, room.data.ptr, out.data.ptr)
            arguments = (*map(np.uint64, pointers), number, np.int32(kind.times))
            cooperative = {"enable_cooperative_groups": True} if blocks > 1 else {}
            self._kernel((blocks,), (kind.threads,), arguments, **cooperative)
            taken.append(one(kind, cupy.asnumpy(out)))
        return summary(taken[1:])

    def launches(self) -> Iterator[ConstantTime]:
        """Yields the times of launches of a kernel that does nothing, of the host and of the GPU
        from one to the next."""
        empty = ((1,), (32,), (np.int32(0),))
        ways: dict[str, Callable[[], object]] = {
            "a launch": lambda: self._nothing(*empty),
            "a cooperative launch": lambda: self._nothing(*empty, enable_cooperative_groups=True),
        }
        for name, launch in ways.items():
            host, gpu = self._launched(launch, 50)
            yield ConstantTime(f"{name}, of the host", host)
            yield ConstantTime(f"{name}, from one to the next", gpu)
        stream = self._cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for _ in range(50):
                self._nothing(*empty)
            graph = stream.end_capture()
        yield ConstantTime("a graph of 50 launches", self._launched(graph.launch, 1)[1])
        query = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        taken = []
        for _ in range(RUNS):
            begin = time.perf_counter()
            query(self._nothing.ptr, 512, 0)
            taken.append(time.perf_counter() - begin)
        yield ConstantTime("a query of occupancy, of the host", summary(taken[1:]))

    def _launched(self, launch: Callable[[], object], n: int) -> tuple[Sample, Sample]:
        """Launches `n` times behind a long copy, several times; returns the host's time of one and
        the GPU's."""
        cuda = self._cupy.cuda
        hosts, gpus = list[float](), list[float]()
        for _ in range(RUNS):
            events = [cuda.Event(), cuda.Event()]
            stall(self._cupy)
            events[0].record()
            begin = time.perf_counter()
            for _ in range(n):
                launch()
            hosts.append((time.perf_counter() - begin) / n)
            events[1].record()
            gpus.append(elapsed(cuda, events, lambda: None)[0] / n)
        return summary(hosts[1:]), summary(gpus[1:])
