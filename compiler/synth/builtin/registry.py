"""registry: the built-in algorithms by name, and making one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hccc.base.diagnostics import fail
from hccc.ir.collective import PROGRAMMABLE, ROOTED, OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.synth.builtin import binomial, hierarchical, recursive
from hccc.synth.builtin.direct import direct, two_shot
from hccc.synth.builtin.levels import levels
from hccc.synth.builtin.ring import OPS as RING
from hccc.synth.builtin.ring import ring
from hccc.synth.builtin.tree import tree
from hccc.synth.common.transfer_table import check_size

# Every rank ends with something of every other, in a chunk of its own: so many transfers at least.
# Of Allreduce that is so where each rank reduces a share, which no tree between nodes does.
_PAIRWISE = (OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.ALLTOALL, OpType.ALLREDUCE)


@dataclass(frozen=True, slots=True)
class Builtin:
    """name: of the command line; ops: the collectives it serves; description: one line; make: the
    Program of one of `ops`, on a Topology, for a root."""

    name: str
    ops: tuple[OpType, ...]
    description: str
    make: Callable[[Topology, OpType, int], Program]


def _tree(t: Topology, _: OpType, __: int) -> Program:
    return tree(t)


def _levels(t: Topology, _: OpType, __: int) -> Program:
    return levels(t)


BUILTINS = {
    builtin.name: builtin
    for builtin in (
        Builtin("ring", RING, "NCCL's rings, one for every NIC or disjoint way", ring),
        Builtin("tree", (OpType.ALLREDUCE,), "NCCL's double binary trees over the nodes", _tree),
        Builtin(
            "levels",
            (OpType.ALLREDUCE,),
            "Within nodes, then between them over double binary trees; for many nodes",
            _levels,
        ),
        Builtin(
            "recursive",
            recursive.OPS,
            "Recursive halving and doubling, for any rank count",
            recursive.recursive,
        ),
        Builtin("direct", PROGRAMMABLE, "Every chunk straight to where it must end", direct),
        Builtin(
            "two-shot", (OpType.ALLREDUCE,), "The direct Allreduce: reduce, then spread", two_shot
        ),
        Builtin("binomial", binomial.OPS, "Binomial trees from or to the root", binomial.binomial),
        Builtin(
            "hierarchical",
            hierarchical.OPS,
            "Within nodes, then between them over all NICs; unequal nodes too",
            hierarchical.hierarchical,
        ),
    )
}


def serving(op: OpType) -> list[str]:
    """Returns the names of the built-ins that serve `op`."""
    return [name for name, builtin in BUILTINS.items() if op in builtin.ops]


def make(name: str, t: Topology, op: OpType, root: int = 0) -> Program:
    """Returns the built-in algorithm `name` for `op` on `t`.

    Raises:
        UserError: E451 it does not serve `op`, or not on `t`; E452 it is too large.
    """
    builtin = BUILTINS[name]
    if op not in builtin.ops:
        have = ", ".join(serving(op))
        raise fail("E451", f"{name} does not serve {op.value}", help=f"these do: {have}")
    if len(t) < 2:
        raise fail("E451", "one rank has nobody to send to", help="give 2 ranks or more")
    if op in _PAIRWISE and name not in ("tree", "levels"):
        check_size(name, len(t), len(t) * (len(t) - 1))
    return builtin.make(t, op, root if op in ROOTED else 0)
