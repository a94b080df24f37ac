"""reuse: in protocol LL no packet is overwritten before it is read (kernel-protocol §14).

A rank's launches are numbered, its epochs, and take the same slots as every second one before.
So a sender w that begins epoch e + 2 overwrites what its receiver r got in epoch e. It may, if r
has left e: if r had begun e + 1, since a rank leaves one launch before it begins the next. And w
knows that r had, if in e + 1 it waited for anything that r sends there, or that somebody sends who
waited for r, and so on: packets are of one epoch only.

So for every connection w → r there must be a path through program order and waits from some
primitive of r to one of w (`analysis/hearing`), unless all ranks greet each other: then each waits
for the others' greetings, of which the same holds. The other proofs of a launch then hold for each
of them by itself.
"""

from __future__ import annotations

import numpy as np

from hccc.analysis.hearing import BITS, hearing
from hccc.base.diagnostics import fail
from hccc.ir.plan import Plan
from hccc.proofs.proof import Proof


def reuse(plan: Plan) -> Proof:
    """Proves that `plan`'s packet slots are free whenever they are written; it must have passed
    `deadlock`. O(ranks / 64 · (primitives + waits)).

    Raises:
        UserError E308: a rank sends to one that it never hears of within a launch.
    """
    q = plan.queues
    hears = np.full(len(q), plan.greets)
    for low, heard in () if plan.greets else hearing(plan):
        some = (q.dst >= low) & (q.dst < low + BITS)
        bit = (q.dst[some] - low).astype(np.uint64)
        hears[some] = heard[q.src[some]] >> bit & np.uint64(1)
    if not hears.all():
        at = int(np.argmin(hears))
        raise fail(
            "E308",
            f"rank {q.src[at]} sends packets to rank {q.dst[at]} and never hears of it within a "
            "launch, so it could overwrite packets that are not read yet",
            help="compile the program again: such a plan says `greets`",
        )
    greetings = plan.n_ranks * (plan.n_ranks - 1) * plan.greets
    slots = {"packet slots": int(q.length.sum()) + greetings, "connections": len(q)}
    return Proof("reuse", "no packet is overwritten before it is read", dict(slots))
