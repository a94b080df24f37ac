"""machine: builds `machine.cpp`, and runs launches of a program on it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from hccc.base.building.build import build_alone
from hccc.base.diagnostics import Note, UserError, fail
from hccc.runtime.ptx.encode import Array, PtxProgram, encode
from hccc.runtime.ptx.parse import parse, refuse

SOURCE = Path(__file__).with_name("machine.cpp")
_HEADERS = tuple(SOURCE.with_name(f"{name}.h") for name in ("instructions", "machine", "memory"))
_FLAGS = ("-O2", "-fvisibility=hidden", "-ffp-contract=off")
_MOST_SKIPS = 2_000  # of the time in which nothing goes on: all of them are longer than a day
_FINDINGS = (  # enum PtxFinding
    "",
    "reads what another thread has written and nothing has published",
    "reads what it may still have from before another thread wrote",
    "writes where another thread writes, and nothing orders them",
    "touches memory that is nobody's",
    "touches memory at an address that does not divide its size",
    "waits, and nothing can go on",
    "stops, or asks of a barrier what the machine has not",
)

_LAST_UNORDERED = 3


class _ReportRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("finding", "where", "grid", "block", "thread")),
        *((f"writer{name}", ctypes.c_int) for name in ("", "_grid", "_block", "_thread")),
        ("at", ctypes.c_uint64),
    )


class _ProgramRecord(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("code", "functions", "constants", "copies", "opcodes")),
        *((name, ctypes.c_uint64) for name in ("n_code", "stack_bytes", "shared_bytes")),
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
class PtxLaunch:
    """A launch on the GPU of a rank: those of one run one after the other, others at once."""

    params: bytes
    x: int
    y: int
    threads: int
    rank: int


@dataclass(frozen=True, slots=True)
class PtxMulticast:
    """Addresses that stand for as many bytes at each of `places`, of which nothing else is
    known."""

    begin: int
    bytes: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PtxFinding:
    """A fault that the machine found. what: in words; who: rank, block of it, thread; source:
    lines, from the innermost function out; writer: of the store that was not ordered."""

    what: str
    unordered: bool
    who: tuple[int, int, int]
    source: tuple[str, ...]
    writer_who: tuple[int, int, int]
    writer: tuple[str, ...]

    def error(self) -> UserError:
        """Makes the error for it."""

        def named(rank: int, block: int, thread: int) -> str:
            return f"rank {rank}, block {block}, thread {thread}"

        notes = [Note(f"at {', in '.join(self.source)}")]
        if self.writer:
            notes.append(Note(f"{named(*self.writer_who)} writes at {', in '.join(self.writer)}"))
        lacks = "a release, an acquire, a fence or a barrier is missing: please report it"
        help = lacks if self.unordered else None
        return fail("E488", f"{named(*self.who)} {self.what}", notes=notes, help=help)


class PtxKernel:
    """A kernel of a text of PTX, ready to run."""

    def __init__(self, text: str, name: str) -> None:
        """Raises UserError E487 for what the machine does not run."""
        self.program = encode(parse(text))
        self._library = _library()
        for row, origin in zip(self.program.code, self.program.origins, strict=True):
            if not self._library.hccc_ptx_knows(self.program.opcodes[row["handler"]].encode()):
                raise refuse(f"the instruction `{origin.opcode}`", origin.line)
        if name not in self.program.names:
            raise refuse(f"there is no kernel {name}", 1)
        self._function = self.program.names[name]
        self._params = self.program.parameters[self._function]
        self._table = _table_of(self.program)
        self.executed = np.zeros(len(self.program.code), np.bool_)  # in any run yet

    def executed_lines(self) -> set[int]:
        """Returns the lines of the text that any run has executed."""
        return set(self.program.code["line"][self.executed].tolist())

    def run(
        self,
        grids: Sequence[PtxLaunch],
        regions: Sequence[tuple[int, int]],
        seed: int,
        multicasts: Sequence[PtxMulticast] = (),
    ) -> PtxFinding | None:
        """Runs launches to their ends; returns the first fault. regions: address and bytes of all
        memory that they may touch; multicasts: addresses that stand for parts of it.

        Raises:
            UserError: E455 there is too little memory.
        """
        rows = (_LaunchRecord * len(grids))()
        for row, g in zip(rows, grids, strict=True):
            row.params, row.params_bytes, row.params_at = g.params, len(g.params), self._params
            row.function, row.stream = self._function, g.rank
            row.x, row.y, row.threads = g.x, g.y, g.threads
        memory = self.program.memory
        own = [(memory.ctypes.data, memory.nbytes)]
        known = np.array([*regions, *own], "u8")
        executed = np.zeros(len(self.program.code), np.uint8)
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
        if self._library.hccc_ptx_run(ctypes.byref(self._table), ctypes.byref(run)):
            raise fail("E455", "not enough memory for all threads of a launch")
        self.executed |= executed.astype(bool)
        return self._finding(run.report, grids) if run.report.finding else None

    def _finding(self, report: _ReportRecord, grids: Sequence[PtxLaunch]) -> PtxFinding:
        return PtxFinding(
            _FINDINGS[report.finding],
            report.finding <= _LAST_UNORDERED,
            (grids[report.grid].rank, report.block, report.thread),
            self._source(report.where),
            (grids[report.writer_grid].rank, report.writer_block, report.writer_thread),
            self._source(report.writer) if report.writer >= 0 else (),
        )

    def _source(self, where: int) -> tuple[str, ...]:
        """Returns the lines that an instruction comes from, the innermost first."""
        origin = self.program.origins[where]
        files = self.program.module.files
        lines = [f"{Path(files[file]).name}:{line}" for file, line, _ in origin.source]
        return (f"`{origin.opcode}`, line {origin.line} of the PTX", *dict.fromkeys(lines))


def _table_of(p: PtxProgram) -> Any:
    opcodes = (ctypes.c_char_p * len(p.opcodes))(*(opcode.encode() for opcode in p.opcodes))
    tables: list[Array] = [p.code, p.functions, p.constants, p.copies]
    made = _ProgramRecord(
        *(table.ctypes.data for table in tables),
        ctypes.cast(opcodes, ctypes.c_void_p).value,
        len(p.code),
        p.stack_bytes,
        p.shared_bytes,
    )
    made.kept = opcodes, p  # as long as the table
    return made


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build_alone(SOURCE, _FLAGS, _HEADERS)))
