"""Program: a table of chunk transfers and the collective they claim to perform.

Printed, a Program is the transfer language itself (docs/transfer-language.md):

    def ResCCLAlgo(nRanks=2, AlgoName="pair", OpType="Allreduce", nChunks=2):
        transfer(1, 0, 0, 0, rrc)
        transfer(0, 1, 1, 0, recv)

Invariants (1 to 4: `check`)
1. `transfers` is sorted by step; within a step it is in program order.
2. 0 <= src, dst < n_ranks, src != dst, 0 <= chunk < n_chunks, 0 <= step < 2**31; op is one of
   `Op`, and rrc only where the collective reduces; line >= 0, 0 where there is no text.
3. n_ranks, n_chunks, channels and warps are within `ir/limits`; n_ranks >= 1, n_chunks is a
   positive multiple of the collective's blocks, and 0 <= root < n_ranks.
4. The name can name kernels (`ir/names`); channels, warps and nics_per_node are positive;
   gpus_per_node divides n_ranks and is at least nics_per_node.
5. After `verify`: the collective's result holds at every rank.

Source: ResCCL §4.2, Fig. 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import Note, Source, Span
from hccc.base.shown import brief
from hccc.ir.arrays import frozen
from hccc.ir.collective import Collective, OpType
from hccc.ir.limits import MAX_CHANNELS, MAX_CHUNKS, MAX_RANKS, MAX_WARPS
from hccc.ir.names import IDENTIFIER, objection

TRANSFER = np.dtype(
    [("src", "i4"), ("dst", "i4"), ("step", "i4"), ("chunk", "i4"), ("line", "i4"), ("op", "i4")]
)


class Op(IntEnum):
    """The effect of a transfer at its destination."""

    RECV = 0
    RRC = 1


class Origin(Protocol):
    """The source text of transfers; implemented by the language of the Program."""

    @property
    def source(self) -> Source | None:
        """The whole text."""
        ...

    def place(self, transfer: int) -> tuple[Span | None, dict[str, int]]:
        """Returns the span and the loop values of row `transfer` of the Program's table."""
        ...

    def header(self, key: str) -> Span | None:
        """Returns the span of a header key's value, for problems of the whole program."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One algorithm. `transfers`: TRANSFER[n]; the rest is its header."""

    name: str
    collective: Collective
    channels: int
    warps: int
    gpus_per_node: int
    nics_per_node: int
    transfers: NDArray[Any]
    origin: Origin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "transfers", frozen(self.transfers, TRANSFER))

    def __len__(self) -> int:
        return len(self.transfers)

    def __repr__(self) -> str:
        return brief(self, f"{self.name}: {self.collective.title}, {len(self):,} transfers")

    def describe(self, i: int) -> str:
        """Describes transfer i for messages: `transfer(0, 1, 4, 3, rrc) with n=0, r=2`."""
        t = self.transfers[i]
        loops = self.origin.place(i)[1] if self.origin else {}
        values = "; " + ", ".join(f"{k}={v}" for k, v in loops.items()) if loops else ""
        return (
            f"transfer({t['src']}, {t['dst']}, {t['step']}, {t['chunk']}, "
            f"{Op(int(t['op'])).name.lower()}){f' with{values[1:]}' if values else ''}"
        )

    def span(self, i: int) -> Span | None:
        """Returns the span where transfer `i` was written."""
        return self.origin.place(i)[0] if self.origin else None

    def note(self, i: int, text: str) -> Note:
        """Makes a note that points at transfer `i`; `{}` in `text` becomes its description."""
        return Note(text.format(self.describe(i)), self.span(i))


def same(a: Program, b: Program) -> bool:
    """Tells whether two Programs mean the same (source lines and origin aside)."""
    names = ["src", "dst", "step", "chunk", "op"]
    return (
        (a.name, a.collective, a.channels, a.warps, a.gpus_per_node, a.nics_per_node)
        == (b.name, b.collective, b.channels, b.warps, b.gpus_per_node, b.nics_per_node)
        and len(a) == len(b)
        and all(np.array_equal(a.transfers[k], b.transfers[k]) for k in names)
    )


def lines(p: Program) -> Iterator[str]:
    """Prints the Program in the transfer language; parsing it gives the same Program."""
    c = p.collective
    root = f", Root={c.root}" if c.rooted else ""
    root += f', Demand="{c.demand.text()}"' if c.demand else ""
    nics = f"NICPerNode={p.nics_per_node}, " if p.nics_per_node != p.gpus_per_node else ""
    yield (
        f"def ResCCLAlgo(nRanks={c.n_ranks}, nChannels={p.channels}, nWarps={p.warps}, "
        f'AlgoName="{p.name}", OpType="{c.name}", GPUPerNode={p.gpus_per_node}, '
        f"{nics}nChunks={c.n_chunks}{root}):"
    )
    for t in p.transfers.tolist():
        src, dst, step, chunk, _, op = t
        yield f"    transfer({src}, {dst}, {step}, {chunk}, {'rrc' if op else 'recv'})"


def check(p: Program) -> list[str]:
    """Lists the invariants that `p` breaks, in words; empty when it is sound. O(transfers)."""
    return [*_header_problems(p), *_table_problems(p)]


def _header_problems(p: Program) -> Iterator[str]:
    c = p.collective
    if not IDENTIFIER.fullmatch(p.name) or objection(p.name):
        yield f"the name, {p.name[:64]!a}, cannot name kernels"
    if not 1 <= c.n_ranks <= MAX_RANKS:
        yield f"{c.n_ranks:,} ranks are not 1 to {MAX_RANKS:,}"
        return
    if c.op is OpType.CUSTOM and (c.demand is None or c.demand.n_ranks != c.n_ranks):
        yield "a custom collective has a demand of its ranks"
        return
    blocks = c.least_chunks
    if not 1 <= c.n_chunks <= MAX_CHUNKS or c.n_chunks % blocks:
        yield f"{c.n_chunks:,} chunks are no multiple of {blocks} up to {MAX_CHUNKS:,}"
    if not 0 <= c.root < c.n_ranks:
        yield f"the root, {c.root}, is no rank"
    limits = {"channels": MAX_CHANNELS, "warps": MAX_WARPS}
    for name in ("channels", "warps", "gpus_per_node", "nics_per_node"):
        if not 1 <= getattr(p, name) <= limits.get(name, MAX_RANKS):
            yield f"{name} is {getattr(p, name)}, not 1 to {limits.get(name, MAX_RANKS):,}"
    if p.gpus_per_node > 0 and c.n_ranks % p.gpus_per_node:
        yield f"{p.gpus_per_node} GPUs a node do not divide {c.n_ranks} ranks"
    if p.nics_per_node > p.gpus_per_node:
        yield f"there are more NICs a node, {p.nics_per_node}, than GPUs, {p.gpus_per_node}"


def _table_problems(p: Program) -> Iterator[str]:
    t, c = p.transfers, p.collective
    if t.ndim != 1:
        yield "the table of transfers has more than one dimension"
        return
    ends = {"src": c.n_ranks, "dst": c.n_ranks, "chunk": c.n_chunks, "op": len(Op)}
    for name, end in ends.items():
        if ((t[name] < 0) | (t[name] >= end)).any():
            yield f"a transfer has {name} outside 0..{end - 1}"
    for name in ("step", "line"):
        if (t[name] < 0).any():
            yield f"a transfer has a negative {name}"
    if (t["src"] == t["dst"]).any():
        yield "a rank transfers to itself"
    if not c.reduces and (t["op"] == Op.RRC).any():
        yield f"a transfer reduces, but {c.op.value} does not"
    if (t["step"][1:] < t["step"][:-1]).any():
        yield "the transfers are not sorted by step"


def call_form(program: Program) -> tuple[object, ...]:
    """Returns what callers must know of a Program: Programs alike in it can be one library."""
    c = program.collective
    return c.name, c.n_ranks, c.root, c.most_blocks(), program.gpus_per_node


def call_form_text(program: Program) -> str:
    """Writes a Program's name and `call_form` for people."""
    c, gpus = program.collective, program.gpus_per_node
    text = f"{c.name} of {c.n_ranks} ranks, {gpus} in a node, root {c.root}"
    return f"{program.name} is {text}"
