"""kernel: builds a machine, and runs launches of a kernel's text on it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hccc.base.building.build import build_alone
from hccc.base.diagnostics import Note, UserError, fail

Array = NDArray[Any]
Place = tuple[int, int, int]  # a file's number, line and column
SHARED = tuple(Path(__file__).with_name(f"{name}.h") for name in ("floats", "grids", "memory"))
_FLAGS = ("-O2", "-fvisibility=hidden", "-ffp-contract=off")
_MOST_SKIPS = 2_000  # of the time in which nothing goes on: all of them are longer than a day
_FINDINGS = (  # enum Finding
    "",
    "reads what another has written and nothing has published",
    "reads what it may still have from before another wrote",
    "accesses what another writes, and nothing orders them",
    "reads or writes a register that a load has yet to write",
    "touches memory that is nobody's",
    "touches memory at an address that does not divide its size",
    "waits, and nothing can go on",
    "stops, or asks of a barrier what the machine has not",
)
_LAST_UNORDERED = 4
_WAITED = 2  # enum Executed


class InstructionOrigin(Protocol):
    """The instruction of a text. line: from 1; source: its place, then those it is inlined at."""

    @property
    def line(self) -> int: ...
    @property
    def opcode(self) -> str: ...
    @property
    def source(self) -> tuple[Place, ...]: ...


def refuse(language: str, what: str, line: int) -> UserError:
    """Makes the error for text that a machine does not run."""
    help = "machines run what compilers make of hccc's kernels; a new instruction is to be added"
    return fail("E487", f"{language}, line {line}: {what}", help=help)


class _ReportRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("finding", "where", "grid", "block", "unit")),
        *((f"writer{name}", ctypes.c_int) for name in ("", "_grid", "_block", "_unit")),
        ("at", ctypes.c_uint64),
    )


class _RunRecord(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("grids", "regions", "multicasts", "replicas")),
        *((n, ctypes.c_uint64) for n in ("n_grids", "n_regions", "n_multicasts")),
        *((n, ctypes.c_uint64) for n in ("seed", "hang", "steps")),
        ("executed", ctypes.c_void_p),
        ("report", _ReportRecord),
    )


class _LaunchRecord(ctypes.Structure):
    _fields_ = (
        ("params", ctypes.c_char_p),
        *((n, ctypes.c_int32) for n in ("params_bytes", "params_at", "function")),
        *((n, ctypes.c_int32) for n in ("x", "y", "threads", "stream")),
    )


@dataclass(frozen=True, slots=True)
class MachineLaunch:
    """A launch on the GPU of a rank: those of one run one after the other, others at once."""

    params: bytes
    x: int
    y: int
    threads: int
    rank: int


@dataclass(frozen=True, slots=True)
class Multicast:
    """Addresses that stand for as many bytes at each of `places`, of which nothing else is
    known."""

    begin: int
    bytes: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """A fault that a machine found. what: in words; who: rank, block of it, thread or wave; source:
    lines, from the innermost function out; writer: of the store that was not ordered."""

    what: str
    unordered: bool
    unit: str
    who: tuple[int, int, int]
    source: tuple[str, ...]
    writer_who: tuple[int, int, int]
    writer: tuple[str, ...]

    def error(self) -> UserError:
        """Makes the error for it."""

        def named(rank: int, block: int, unit: int) -> str:
            return f"rank {rank}, block {block}, {self.unit} {unit}"

        notes = [Note(f"at {', in '.join(self.source)}")]
        if self.writer:
            notes.append(Note(f"{named(*self.writer_who)} writes at {', in '.join(self.writer)}"))
        lacks = "a release, an acquire, a fence, a wait or a barrier is missing: please report it"
        help = lacks if self.unordered else None
        return fail("E488", f"{named(*self.who)} {self.what}", notes=notes, help=help)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCode:
    """A kernel's text as tables of a machine.

    table: the record of the tables in C, kept what it points to; code: the instructions; memory: of
    global and constant variables; function, params_at: the kernel's, of each launch.
    """

    language: str
    unit: str  # thread or wave
    table: ctypes.Structure
    kept: tuple[object, ...]
    code: Array
    origins: tuple[InstructionOrigin, ...]
    opcodes: tuple[str, ...]  # as the machine names them; `handler` of an instruction counts in it
    files: Mapping[int, str]
    memory: Array
    function: int
    params_at: int


class MachineKernel:
    """A kernel's text on a machine, ready to run."""

    def __init__(self, source: Path, headers: Sequence[Path], code: MachineCode) -> None:
        """Readies a kernel on the machine of a source. Raises UserError E487 for what it lacks."""
        self.code = code
        self._library = _library(source, (*headers, *SHARED))
        known = [self._library.hccc_machine_knows(name.encode()) for name in code.opcodes]
        for row, origin in zip(code.code, code.origins, strict=True):
            if not known[row["handler"]]:
                raise refuse(code.language, f"the instruction `{origin.opcode}`", origin.line)
        self.executed = np.zeros(len(code.code), np.uint8)  # in any run yet

    def executed_lines(self) -> set[int]:
        """Returns the lines of the text that any run has executed."""
        return set(self.code.code["line"][self.executed > 0].tolist())

    def waiting_lines(self) -> set[int]:
        """Returns the lines of waits that had to wait for a write-back, or for a store to memory
        that is not the wave's own, in any run."""
        return set(self.code.code["line"][self.executed & _WAITED > 0].tolist())

    def places(self, line: int) -> list[tuple[str, int, int]]:
        """Returns file, line and column that a line comes from, then those it is inlined at."""
        origin = next(o for o in self.code.origins if o.line == line)
        return [(Path(self.code.files[file]).name, row, at) for file, row, at in origin.source]

    def run(
        self,
        grids: Sequence[MachineLaunch],
        regions: Sequence[tuple[int, int]],
        seed: int,
        multicasts: Sequence[Multicast] = (),
    ) -> MachineFinding | None:
        """Runs launches to their ends; returns the first fault. regions: address and bytes of all
        memory that they may touch; multicasts: addresses that stand for parts of it.

        Raises:
            UserError: E455 there is too little memory.
        """
        rows = (_LaunchRecord * len(grids))()
        for row, g in zip(rows, grids, strict=True):
            row.params, row.params_bytes = g.params, len(g.params)
            row.function, row.params_at = self.code.function, self.code.params_at
            row.x, row.y, row.threads, row.stream = g.x, g.y, g.threads, g.rank
        own = [(self.code.memory.ctypes.data, self.code.memory.nbytes)]
        known = np.array([*regions, *own], "u8")
        executed = np.zeros(len(self.code.code), np.uint8)
        firsts = accumulate((len(m.places) for m in multicasts), initial=0)
        spans = [
            (m.begin, m.bytes, first, len(m.places))
            for m, first in zip(multicasts, firsts, strict=False)
        ]
        all_spans = np.array(spans or [(0, 0, 0, 0)], "u8")
        places = np.array([place for m in multicasts for place in m.places] or [0], "u8")
        run = _RunRecord(
            grids=ctypes.addressof(rows),
            regions=known.ctypes.data,
            multicasts=all_spans.ctypes.data,
            replicas=places.ctypes.data,
            n_multicasts=len(multicasts),
            n_grids=len(grids),
            n_regions=len(known),
            seed=seed,
            hang=_MOST_SKIPS,
            executed=executed.ctypes.data,
        )
        if self._library.hccc_machine_run(ctypes.byref(self.code.table), ctypes.byref(run)):
            raise fail("E455", "not enough memory for all threads of a launch")
        self.executed |= executed
        self.steps = int(run.steps)
        return self._finding(run.report, grids) if run.report.finding else None

    def _finding(self, report: _ReportRecord, grids: Sequence[MachineLaunch]) -> MachineFinding:
        return MachineFinding(
            _FINDINGS[report.finding],
            report.finding <= _LAST_UNORDERED,
            self.code.unit,
            (grids[report.grid].rank, report.block, report.unit),
            self._source(report.where),
            (grids[report.writer_grid].rank, report.writer_block, report.writer_unit),
            self._source(report.writer) if report.writer >= 0 else (),
        )

    def _source(self, where: int) -> tuple[str, ...]:
        """Returns the lines that an instruction comes from, the innermost first."""
        origin = self.code.origins[where]
        lines = [f"{Path(self.code.files[file]).name}:{line}" for file, line, _ in origin.source]
        text = f"`{origin.opcode}`, line {origin.line} of the {self.code.language}"
        return (text, *dict.fromkeys(lines))


@cache
def _library(source: Path, headers: tuple[Path, ...]) -> ctypes.CDLL:
    return ctypes.CDLL(str(build_alone(source, _FLAGS, headers)))
