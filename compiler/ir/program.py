"""Program: a table of chunk transfers and the collective they claim to perform.

Printed, a Program is the transfer language itself (docs/transfer-language.md):

    def ResCCLAlgo(nRanks=2, AlgoName="pair", OpType="Allreduce", nChunks=2):
        transfer(1, 0, 0, 0, rrc)
        transfer(0, 1, 1, 0, recv)

Invariants
1. `transfers` is sorted by step; within a step it is in program order.
2. 0 <= src, dst < n_ranks, src != dst, 0 <= chunk < n_chunks, 0 <= step < 2**31.
3. After `verify`: the collective's result holds at every rank.

Source: ResCCL §4.2, Fig. 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hccc.diagnostics import Note, Span
from hccc.ir.arrays import frozen
from hccc.ir.collective import Collective

TRANSFER = np.dtype(
    [("src", "i4"), ("dst", "i4"), ("step", "i4"), ("chunk", "i4"), ("line", "i4"), ("op", "i4")]
)


class Op(IntEnum):
    """What a transfer does at its destination."""

    RECV = 0
    RRC = 1


class Origin(Protocol):
    """Where transfers came from; implemented by the language that made the Program."""

    def place(self, transfer: int) -> tuple[Span | None, dict[str, int]]:
        """The span and the loop values of row `transfer` of the Program's table."""
        ...

    def header(self, key: str) -> Span | None:
        """The span of a header key's value, for problems of the whole program."""
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

    def describe(self, i: int) -> str:
        """`transfer 12 (0 → 1, chunk 3, step 4, rrc; n=0, r=2)`: for messages."""
        t = self.transfers[i]
        loops = self.origin.place(i)[1] if self.origin else {}
        values = "; " + ", ".join(f"{k}={v}" for k, v in loops.items()) if loops else ""
        return (
            f"transfer({t['src']}, {t['dst']}, {t['step']}, {t['chunk']}, "
            f"{Op(int(t['op'])).name.lower()}){f' with{values[1:]}' if values else ''}"
        )

    def span(self, i: int) -> Span | None:
        """Where transfer `i` was written."""
        return self.origin.place(i)[0] if self.origin else None

    def note(self, i: int, text: str) -> Note:
        """A note that points at transfer `i`; `{}` in `text` becomes its description."""
        return Note(text.format(self.describe(i)), self.span(i))


def same(a: Program, b: Program) -> bool:
    """Whether two Programs mean the same (source lines and origin aside)."""
    names = ["src", "dst", "step", "chunk", "op"]
    return (
        (a.name, a.collective, a.channels, a.warps, a.gpus_per_node, a.nics_per_node)
        == (b.name, b.collective, b.channels, b.warps, b.gpus_per_node, b.nics_per_node)
        and len(a) == len(b)
        and all(np.array_equal(a.transfers[k], b.transfers[k]) for k in names)
    )


def lines(p: Program) -> Iterator[str]:
    """The Program in the transfer language; parsing it gives the same Program."""
    c = p.collective
    root = f", Root={c.root}" if c.rooted else ""
    yield (
        f"def ResCCLAlgo(nRanks={c.n_ranks}, nChannels={p.channels}, nWarps={p.warps}, "
        f'AlgoName="{p.name}", OpType="{c.op.value}", GPUPerNode={p.gpus_per_node}, '
        f"NICPerNode={p.nics_per_node}, nChunks={c.n_chunks}{root}):"
    )
    for t in p.transfers.tolist():
        src, dst, step, chunk, _, op = t
        yield f"    transfer({src}, {dst}, {step}, {chunk}, {'rrc' if op else 'recv'})"


def check(p: Program) -> list[str]:
    """The invariants that `p` breaks, in words; empty when it is sound. O(transfers)."""
    t, c = p.transfers, p.collective
    ranks = np.stack([t["src"], t["dst"]])
    problems = []
    if ((ranks < 0) | (ranks >= c.n_ranks)).any():
        problems.append("a transfer has a rank that is not there")
    if ((t["chunk"] < 0) | (t["chunk"] >= c.n_chunks)).any():
        problems.append("a transfer has a chunk that is not there")
    if (np.diff(t["step"]) < 0).any():
        problems.append("the transfers are not sorted by step")
    return problems
