"""composed: Programs of what `compose` makes: Allgather, Reducescatter and Allreduce."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from hccc.base.diagnostics import fail
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.common.collectives import COPIES, SUMS
from hccc.synth.common.transfer_table import check_size
from hccc.synth.greedy.programs import from_schedules, owners
from hccc.synth.pods.compose import compose

NAME = "compose"
OPS = frozenset({OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLREDUCE})
CHUNKS = (1, 2, 4)
MOST_TRANSFERS = 1 << 18  # of a program of several chunks a rank
BETTER = 1.003  # times the rate: what more chunks must bring


@dataclass(frozen=True, slots=True, eq=False)
class ComposedProgram:
    """A Program; chunks: of a rank; ring: whether nodes send to the next one only; algbw: GB/s of a
    call that its busiest resource would let through, were nothing else in its way."""

    program: Program
    chunks: int
    ring: bool
    algbw: float

    @property
    def name(self) -> str:
        """For people: `compose, 2 chunks a rank, nodes in a ring`."""
        ring = ", nodes in a ring" if self.ring else ""
        return f"{NAME}, {self.chunks} chunk{'s' if self.chunks > 1 else ''} a rank{ring}"


def composed(t: Topology, op: OpType) -> Iterator[ComposedProgram]:
    """Programs of composed schedules, fewest chunks first; of more chunks those that load the
    busiest resource less.

    Raises:
        UserError: E451 there are none for `op`, or on this cluster; E452 they are too large.
    """
    if op not in OPS:
        raise fail("E451", f"compose schedules nothing for {op.value}", help="built-ins do")
    best = [0.0, 0.0]
    for chunks, ring in product(CHUNKS, (False, True)):
        owner = owners(t, op, 0, chunks)
        size = len(owner) * (len(t) - 1) * (2 if op is OpType.ALLREDUCE else 1)
        if chunks > 1 and size > MOST_TRANSFERS:
            return
        check_size(NAME, len(t), size)
        copies = None if op in SUMS else compose(t, owner, ring=ring)
        sums = None if op in COPIES else compose(t, owner, turned=True, ring=ring)
        parts = [one for one in (copies, sums) if one]
        if not parts:
            continue
        algbw = len(owner) / sum(1 / one.rate for one in parts)
        if algbw > BETTER * best[ring]:
            best[ring] = algbw
            there, back = (one.schedule if one else None for one in (copies, sums))
            made = from_schedules("Compose", t, op, 0, owner, there, back)
            yield ComposedProgram(made, chunks, ring, algbw)
