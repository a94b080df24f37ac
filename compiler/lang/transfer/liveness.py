"""liveness: the variables that a loop carries from one iteration to the next, or that outlive a
block.

A loop with independent iterations runs as one array operation over all of them; a loop that
*carries* a variable (reads it before assigning it in the same iteration, and assigns it) runs
iteration by iteration. Both are decided from the text, and in doubt a variable is carried.

Two passes over the tree, each linear in its size times its depth:
`exposed`  (upwards)   names that may be read before the statement assigned them;
`keep`     (downwards) names assigned inside that may be read afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hccc.lang.transfer.syntax import (
    Assign,
    Expr,
    For,
    If,
    Stmt,
    TransferStmt,
    TransferTable,
    names_in,
    varying_elements,
)


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """About one block. exposed: names it may read from outside; assigned: names it may assign;
    surely: names it always assigns."""

    exposed: frozenset[str]
    assigned: frozenset[str]
    surely: frozenset[str]


@dataclass(slots=True)
class LoopFacts:
    """How to run one `for`. carried: in order of name, empty if iterations are independent; keep:
    names that outlive the loop."""

    body: BlockFacts
    carried: Sequence[str]
    nests: bool  # whether there is a loop inside
    keep: frozenset[str] = frozenset()


@dataclass(slots=True)
class BranchFacts:
    """How to run one `if`. exposed: names that its conditions and branches read; keep: names that
    outlive it."""

    exposed: frozenset[str]
    keep: frozenset[str] = frozenset()


class Liveness:
    """The facts about every loop and `if` of a program."""

    def __init__(self, body: Sequence[Stmt]) -> None:
        self.loops: dict[For, LoopFacts] = {}
        self.branches: dict[If, BranchFacts] = {}
        self.names: set[str] = set()
        self.depth = 1  # of blocks
        self.deepest = 1  # of expressions
        self.elements = 0  # of all lists that differ between iterations
        self._facts: dict[For | If, BlockFacts] = {}
        self._up(body, 1)
        self._down(body, frozenset())

    def _up(self, block: Sequence[Stmt], depth: int) -> BlockFacts:
        self.depth = max(self.depth, depth)
        exposed: set[str] = set()
        assigned: set[str] = set()
        surely: set[str] = set()
        for stmt in block:
            facts = self._statement(stmt, depth)
            exposed |= facts.exposed - surely
            assigned |= facts.assigned
            surely |= facts.surely
        return BlockFacts(frozenset(exposed), frozenset(assigned), frozenset(surely))

    def _statement(self, stmt: Stmt, depth: int) -> BlockFacts:
        match stmt:
            case Assign(targets, values):
                self.names.update(targets)
                self._measure(values)
                names = frozenset(targets)
                return BlockFacts(_reads(values), names, names)
            case TransferStmt(args):
                self._measure(args)
                return BlockFacts(_reads(args), frozenset(), frozenset())
            case TransferTable():
                return BlockFacts(frozenset(), frozenset(), frozenset())
            case For():
                return self._for(stmt, depth)
            case If():
                return self._if(stmt, depth)

    def _measure(self, exprs: Sequence[Expr]) -> None:
        self.deepest = max([self.deepest, *(expr.depth for expr in exprs)])
        self.elements += sum(map(varying_elements, exprs))

    def _for(self, stmt: For, depth: int) -> BlockFacts:
        self.names.add(stmt.target)
        before = len(self.loops)
        body = self._up(stmt.body, depth + 1)
        exposed = body.exposed - {stmt.target}
        nests = len(self.loops) > before
        self.loops[stmt] = LoopFacts(body, sorted(exposed & body.assigned), nests)
        self._measure(stmt.limits())
        outside = exposed | reads_of(stmt)
        facts = BlockFacts(outside, body.assigned | {stmt.target}, frozenset())
        self._facts[stmt] = facts
        return facts

    def _if(self, stmt: If, depth: int) -> BlockFacts:
        blocks = [self._up(block, depth + 1) for _, block in stmt.branches]
        blocks.append(self._up(stmt.otherwise, depth + 1))
        conditions = [condition for condition, _ in stmt.branches]
        self._measure(conditions)
        exposed = _reads(conditions).union(*(b.exposed for b in blocks))
        assigned = frozenset[str]().union(*(b.assigned for b in blocks))
        surely = blocks[0].surely.intersection(*(b.surely for b in blocks))
        self.branches[stmt] = BranchFacts(exposed)
        facts = BlockFacts(exposed, assigned, surely)
        self._facts[stmt] = facts
        return facts

    def _down(self, block: Sequence[Stmt], after: frozenset[str]) -> None:
        live = set(after)
        for stmt in reversed(block):
            match stmt:
                case Assign(targets, values):
                    live.difference_update(targets)
                    live |= _reads(values)
                case TransferStmt(args):
                    live |= _reads(args)
                case TransferTable():
                    pass
                case For() | If():
                    self._keep(stmt, live)
                    facts = self._facts[stmt]
                    live -= facts.surely
                    live |= facts.exposed

    def _keep(self, stmt: For | If, live: set[str]) -> None:
        inside = self._facts[stmt].assigned
        keep = frozenset(name for name in inside if name in live)
        if isinstance(stmt, If):
            self.branches[stmt].keep = keep
            for _, block in stmt.branches:
                self._down(block, keep)
            self._down(stmt.otherwise, keep)
            return
        loop = self.loops[stmt]
        loop.keep = keep | frozenset(loop.carried)
        self._down(stmt.body, loop.keep)


def reads_of(loop: For) -> frozenset[str]:
    """Returns the names in the range or list of a loop."""
    return _reads(loop.limits())


def _reads(exprs: Sequence[Expr]) -> frozenset[str]:
    return frozenset[str]().union(*map(names_in, exprs))
