"""The transfer language (`.rccl`; ResCCL Fig. 14): text to Program.

    def ResCCLAlgo(nRanks=4, AlgoName="ring", OpType="Allgather"):
        for r in range(nRanks):
            for s in range(nRanks - 1):
                transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, recv)

From the paper: the header, assignment, `for ... in range(first, end, stride)`, `transfer`,
`+ - * / %` and parentheses. Extensions: constants above the header; `+=` and similar, several
assignments at once; `if`, `elif`, `else` and `a if c else b`; comparisons (not chained); `and`,
`or`, `not`; `// ** ^ & | ~ << >>`; immutable lists, `x[i]`, `len` and `for` over them; `min` and
`max` of two or more, `abs`; functions above the header; `transfer` with keywords; `True` and
`False`; `0x` and `1_000`; the header keys nChunks and Root, and all collectives of
`ir/collective.py`. Header keys are variables of the body: nRanks, nChannels, nWarps, GPUPerNode,
NICPerNode, nChunks, Root. The reference is docs/transfer-language.md.

The meaning is Python's, with these differences: every number is a signed 64-bit integer and
overflow is an error; `/` is exact and a remainder is an error; shifts are by 0 to 63 bits;
comparisons, `and`, `or` and `not` yield 0 or 1 (`and`, `or` evaluate their right side only where
it matters).

Defaults: nChannels=1, nWarps=16, AlgoName="algo", GPUPerNode=nRanks, NICPerNode=GPUPerNode, Root=0,
nChunks=nRanks (Alltoall: nRanks * nRanks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import Note, Source, Span, UserError
from hccc.ir.arrays import I4, I8
from hccc.ir.program import TRANSFER, Program
from hccc.lang.mistakes import At, Mistake, clip
from hccc.lang.transfer.evaluate import Constants, evaluate
from hccc.lang.transfer.header import Header, check_header
from hccc.lang.transfer.iterations import EmittedRows
from hccc.lang.transfer.parse import parse_text
from hccc.lang.transfer.sink import FIELDS, STEP, SearchSink, Sink, TableSink
from hccc.lang.transfer.syntax import For, If, ProgramSyntax, Stmt, TransferStmt, TransferTable
from hccc.lang.transfer.values import EvaluationFault
from hccc.shipped import find as shipped

MAX_BYTES = 128 << 20  # a ring of 512 GPUs in any order, a transfer a line, takes 78
SHOWN_LOOPS = 8
SHOWN_CALLS = 3


def load(path: str | Path) -> Program:
    """Loads the program in a file, or the shipped one of that name. Raises `UserError`."""
    return parse(read(path))


def read(path: Path | str) -> Source:
    """Reads the text of a program file, or of a shipped one. Raises `UserError` E401, E402,
    E404."""
    return shipped.read(Path(path), MAX_BYTES, shipped.PROGRAMS)


def parse(source: Source) -> Program:
    """Parses the program in a text. Raises `UserError`. Linear in the text and the transfers it
    makes."""
    try:
        header, chunks = _run(_algorithm(source), TableSink())
    except Mistake as mistake:
        raise located(mistake, source) from None
    table = _by_step(chunks)
    return Program(
        header.name,
        header.collective,
        header.channels,
        header.warps,
        header.gpus_per_node,
        header.nics_per_node,
        table,
        TextOrigin(source, table),
    )


def _algorithm(source: Source) -> ProgramSyntax:
    if not source.text.strip("\ufeff \t\r\n"):
        help = "a program begins with `ResCCLAlgo(nRanks=..., OpType=...):`"
        raise Mistake("E403", f"{source.name} is empty", help=help)
    return parse_text(source.text)


def _run(algorithm: ProgramSyntax, sink: Sink) -> tuple[Header, list[EmittedRows]]:
    constants = Constants(algorithm.constants)
    header = check_header(algorithm, constants.number)
    variables = header.variables()
    for stmt in algorithm.constants:
        for name in stmt.targets:
            if name in variables and constants.values[name] != variables[name]:
                message = f"the header makes {name} {variables[name]}, and not what it is here"
                raise Mistake("E012", message, stmt.at, f"give the header `{name}={name}`")
    given = {**constants.values, **variables}
    return header, evaluate(algorithm.body, given, header.collective, sink)


def located(mistake: Mistake, source: Source) -> UserError:
    """Returns the error to show, with the values of loops and the calls around it."""
    if not isinstance(mistake, EvaluationFault):
        return mistake.in_source(source)
    if mistake.loops:
        loops = mistake.loops[-SHOWN_LOOPS:]
        mistake.message += f" ({', '.join(f'{name}={value}' for name, value in loops)})"
    calls = mistake.calls[:SHOWN_CALLS]
    notes = [Note(f"in {clip(name)}(...), called here", at.span(source)) for name, at in calls]
    error = mistake.in_source(source)
    return UserError(replace(error.problem, notes=(*error.problem.notes, *notes)))


def _by_step(chunks: list[EmittedRows]) -> NDArray[Any]:
    """Collects all rows in one table, stably sorted by step; frees each part as it is copied."""
    rows = [chunk.rows for chunk in reversed(chunks)]
    chunks.clear()
    steps = [np.zeros(0, np.int32), *(part[:, STEP] for part in reversed(rows))]
    place = _places(np.concatenate(steps))
    table = np.empty((len(place), len(FIELDS)), np.int32)
    begin = 0
    while rows:
        part = rows.pop()
        table[place[begin : begin + len(part)]] = part
        begin += len(part)
    return table.view(TRANSFER).reshape(len(table))


def _places(step: I4) -> I4:
    """Returns the place of each row in a stable sort by step. Radix sorts by 16 bits at a time."""
    order: I8 = np.argsort(step.astype(np.uint16), kind="stable")
    if len(step) and step.max() >= 1 << 16:
        order = order[np.argsort((step[order] >> 16).astype(np.uint16), kind="stable")]
    place = np.empty(len(step), np.int32)
    place[order] = np.arange(len(step), dtype=np.int32)
    return place


@dataclass(slots=True, eq=False)
class TextOrigin:
    """Finds the places of a Program's transfers in its text, by evaluating the text again."""

    _source: Source
    _table: NDArray[Any] | None
    _found: dict[int, tuple[Span | None, dict[str, int]]] = field(default_factory=dict)

    def __getstate__(self) -> Source:
        # The Program has the table too; evaluating again is cheaper than storing it twice.
        return self._source

    def __setstate__(self, source: Source) -> None:
        self._source, self._table, self._found = source, None, {}

    @property
    def source(self) -> Source:
        """The whole text."""
        return self._source

    def place(self, transfer: int) -> tuple[Span | None, dict[str, int]]:
        """Returns the span and the loop values of row `transfer`, by evaluating the program
        again."""
        if transfer not in self._found:
            self._found[transfer] = self._find(transfer)
        return self._found[transfer]

    def header(self, key: str) -> Span | None:
        """Returns the span of a header key's value; of the header's name if the key is missing."""
        algorithm = parse_text(self._source.text)
        values = {pair.key: pair.value.at for pair in algorithm.pairs}
        return values.get(key, algorithm.at).span(self._source)

    def _find(self, transfer: int) -> tuple[Span | None, dict[str, int]]:
        table = self._table if self._table is not None else parse(self._source).transfers
        row = table[transfer]
        earlier = int(np.count_nonzero(table[:transfer] == row))
        algorithm = parse_text(self._source.text)
        found = _statement(algorithm.body, int(row["line"]))
        if found is None:
            return None, {}
        at, loops = found
        wanted = (int(row["src"]), int(row["dst"]), int(row["step"]), int(row["chunk"]))
        search = SearchSink(wanted, int(row["line"]))
        _, chunks = _run(algorithm, search)
        values = np.concatenate([chunk.rows for chunk in chunks])[earlier]
        return at.span(self._source), dict(zip(loops, values.tolist(), strict=True))


def _statement(block: Sequence[Stmt], line: int) -> tuple[At, list[str]] | None:
    """Returns the transfer at `line`, and the variables of the loops around it, outermost first."""
    for stmt in block:
        match stmt:
            case TransferStmt(at=at) if at.line == line:
                return at, []
            case TransferTable() if stmt.line[0] <= line <= stmt.line[-1]:
                places = stmt.places(line - int(stmt.line[0]))
                return At(line, stmt.at.column, places[-1].end + 1), []
            case For(target=target, body=body):
                found = _statement(body, line)
                if found:
                    return found[0], [target, *found[1]]
            case If(branches=branches, otherwise=otherwise):
                for inner in (*(b for _, b in branches), otherwise):
                    found = _statement(inner, line)
                    if found:
                        return found
            case _:
                pass
    return None
