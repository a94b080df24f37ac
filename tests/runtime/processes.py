"""Several processes that launch a collective together over shared memory, and their outcomes.

Each is programs/process.c, a plain C program that uses the generated header. It maps flags,
scratch and two windows of every rank, each at an address of its own choosing, so that no two
processes see them at the same distances.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hccc.runtime
from hccc.emit import directory
from hccc.emit.targets import CPU
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.kernel_shape import round_up
from hccc.ir.plan import Plan
from hccc.runtime.abi import FaultRecord
from hccc.runtime.fault import WaitKind
from hccc.runtime.layout import DTYPES, LayoutShape, shape_of
from hccc.runtime.measure import patterns
from tests.runtime.handwritten import PROGRAMS

INCLUDE = Path(hccc.runtime.__path__[0]) / "include"
PAGE = 4096
WINDOWS = 2
PRIVATE = 2  # a window's number: a copy in the process's own memory instead
OK, TIMEOUT, BAD_ARGUMENT = 0, 1, 2
Groups = Sequence[tuple[int, int]]  # ranks launched by each process: the first, and how many


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. Places are (window, byte); in place, both name one window. delay: of each
    process in order, milliseconds that it waits before."""

    count: int
    source: tuple[int, int] = (0, 0)
    target: tuple[int, int] = (1, 0)
    in_place: bool = False
    micro_batch: int = 256
    window: int = 0
    delay: Sequence[int] = ()

    def said(self, process: int) -> str:
        """Returns the launch as process.c reads it."""
        delay = self.delay[process] if self.delay else 0
        words = (self.count, *self.source, *self.target, int(self.in_place), self.micro_batch)
        return "launch=" + ",".join(map(str, (*words, self.window, delay)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one launch in one process: its status, the fault record, and seconds."""

    status: int
    claimed: int
    rank: int
    kind: WaitKind
    flag: int
    seconds: float

    @classmethod
    def of(cls, line: str) -> Outcome:
        """Parses a line of process.c."""
        status, claimed, rank, _, _, _, _, flag, _, _, kind, seconds = line.split()
        return cls(
            int(status), int(claimed), int(rank), WaitKind(int(kind)), int(flag), float(seconds)
        )


@dataclass(slots=True)
class EndedProcess:
    """One process: its exit status, where it sees memory, and its launches' outcomes."""

    code: int
    places: str
    complaint: str
    launches: list[Outcome] = field(default_factory=list)


class Processes:
    """A plan's kernel as a program, and the memory of all ranks, which lives from run to run."""

    def __init__(
        self,
        plan: Plan,
        place: Path,
        *,
        dtype: str = "int32",
        window: int = 1 << 20,
        flags: Sequence[str] = (),
    ) -> None:
        self.plan, self.dtype, self.window_bytes = plan, dtype, window
        self.shape: LayoutShape = shape_of(plan)
        self.program = _built(plan, place, dtype, flags)
        self.flag_bytes = round_up(self.shape.flag_bytes, PAGE)
        self.scratch_bytes = round_up(self.shape.scratch_bytes(window // 4, 4, 4096), PAGE)
        self._rank = self.flag_bytes + self.scratch_bytes + WINDOWS * window
        self.path = place / "memory"
        with self.path.open("wb") as file:
            file.truncate(PAGE + self.shape.ranks * self._rank)
        with self.path.open("r+b") as file:
            self.memory = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        self.fault = FaultRecord.from_address(self.memory.ctypes.data)

    def reset(self) -> None:
        """Forgets a fault, when no process runs."""
        for rank in range(self.shape.ranks):
            start = PAGE + rank * self._rank
            self.memory[start : start + self.flag_bytes] = 0
        ctypes.memset(ctypes.addressof(self.fault), 0, ctypes.sizeof(self.fault))

    def buffer(self, rank: int, at: tuple[int, int], elements: int) -> patterns.Array:
        """Returns part of a rank's window."""
        window, byte = at
        start = PAGE + rank * self._rank + self.flag_bytes + self.scratch_bytes
        start += window % PRIVATE * self.window_bytes + byte
        dtype = DTYPES[self.dtype]
        assert byte + elements * dtype.itemsize <= self.window_bytes
        return self.memory[start : start + elements * dtype.itemsize].view(dtype)

    def start(
        self, groups: Groups, launches: Sequence[Launch], more: Sequence[Sequence[str]] = ()
    ) -> list[subprocess.Popen[str]]:
        """Starts a process for each group; `more`: options of each, as process.c has them."""
        sizes = [f"{name}={getattr(self, name)}" for name in ("flag_bytes", "scratch_bytes")]
        sizes.append(f"window_bytes={self.window_bytes}")
        return [
            subprocess.Popen(
                [
                    self.program,
                    self.path,
                    f"first={first}",
                    f"n={n}",
                    *sizes,
                    *(more[i] if more else ()),
                    *(launch.said(i) for launch in launches),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i, (first, n) in enumerate(groups)
        ]

    def run(
        self,
        groups: Groups,
        launches: Sequence[Launch],
        *options: str,
        more: Sequence[Sequence[str]] = (),
        timeout: float = 60,
    ) -> list[EndedProcess]:
        """Starts processes as `start` does and returns them once all have ended."""
        each = [[*options, *(more[i] if more else ())] for i in range(len(groups))]
        return ended(self.start(groups, launches, each), timeout)

    def fill(self, launches: Sequence[Launch]) -> None:
        """Gives all ranks the inputs of launches; the launches' places must not overlap."""
        for seed, launch in enumerate(launches):
            p = self.pattern(launch, seed)
            for rank in range(self.shape.ranks):
                send, receive = self._blocks(rank)
                if not launch.in_place:
                    patterns.poison(self.buffer(rank, launch.target, receive * launch.count))
                given = self.buffer(rank, launch.source, send * launch.count)
                given[...] = patterns.inputs(p, rank)

    def wrong(self, launches: Sequence[Launch]) -> list[int]:
        """Returns the number of wrong elements of each launch, all ranks together."""
        found = []
        for seed, launch in enumerate(launches):
            want, bad = patterns.expected(self.pattern(launch, seed)), 0
            for rank in range(self.shape.ranks):
                elements = self._blocks(rank)[1] * launch.count
                bad += patterns.wrong(self.buffer(rank, launch.target, elements), want.at(rank))
            found.append(bad)
        return found

    def pattern(self, launch: Launch, seed: int) -> patterns.Pattern:
        """Returns the data of a launch."""
        return patterns.Pattern(self.plan.collective, self.dtype, "sum", launch.count, seed)

    def _blocks(self, rank: int) -> tuple[int, int]:
        c = self.plan.collective
        return c.input_blocks(rank), c.output_blocks(rank)


def ended(running: Sequence[subprocess.Popen[str]], timeout: float = 60) -> list[EndedProcess]:
    """Returns the outcomes of processes once all have ended; none is left behind."""
    until = time.monotonic() + timeout
    found = []
    try:
        for process in running:
            said, complaint = process.communicate(timeout=max(0.1, until - time.monotonic()))
            assert process.returncode <= 0, (process.returncode, complaint)
            places, *lines = said.splitlines() or [""]
            outcomes = [Outcome.of(line) for line in lines]
            found.append(EndedProcess(process.returncode, places, complaint, outcomes))
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return found


def _built(plan: Plan, place: Path, dtype: str, more: Sequence[str]) -> Path:
    """Builds process.c with the kernel of a plan and `more` flags."""
    directory.write(
        place / "kernels", directory.files(Catalogue.of(plan), [CPU], plan_json.dumps(plan))
    )
    name = plan.name
    defines = {
        "KERNEL_HEADER": f'"{name}.h"',
        "SHAPE": f"{name}_shape",
        "ENTRY": f"{name}_cpu_{dtype}_sum",
        "INPUT_BLOCKS": f"{name}_input_blocks",
        "OUTPUT_BLOCKS": f"{name}_output_blocks",
        "ELEMENT": DTYPES[dtype].itemsize,
    }
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-I.", "-c", *more]
    cxx = ["g++", "-std=c++17", *flags, f"-DHCCC_DTYPE={dtype}", "-DHCCC_OP=sum"]
    named = [f"-D{key}={value}" for key, value in defines.items()]
    c = ["gcc", "-std=gnu99", *flags, *named, str(PROGRAMS / "process.c")]
    for command in (
        [*cxx, f"{name}_cpu.cpp"],
        c,
        ["gcc", "-pthread", "-o", "process", f"{name}_cpu.o", "process.o", *more],
    ):
        done = subprocess.run(command, cwd=place / "kernels", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return place / "kernels" / "process"
