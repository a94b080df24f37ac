"""Which variables a loop carries from one iteration to the next, and which outlive a block.

A loop whose iterations share nothing runs as one array operation over all of them; a loop that
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
    Table,
    Transfer,
    names_in,
    varying_elements,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """About one block: names it may read from outside, names it may assign, names it must."""

    exposed: frozenset[str]
    assigned: frozenset[str]
    surely: frozenset[str]


@dataclass(slots=True)
class Loop:
    """How to run one `for`. `carried`: in order of name, empty if iterations are independent."""

    body: Facts
    carried: Sequence[str]
    nests: bool  # whether there is a loop inside
    keep: frozenset[str] = frozenset()


@dataclass(slots=True)
class Choice:
    """How to run one `if`: what its conditions and branches read, and what outlives it."""

    exposed: frozenset[str]
    keep: frozenset[str] = frozenset()


class Liveness:
    """The facts about every loop and choice of a program."""

    def __init__(self, body: Sequence[Stmt]) -> None:
        self.loops: dict[For, Loop] = {}
        self.choices: dict[If, Choice] = {}
        self.names: set[str] = set()
        self.depth = 1  # of blocks
        self.deepest = 1  # of expressions
        self.elements = 0  # of all lists that iterations have of their own
        self._facts: dict[For | If, Facts] = {}
        self._up(body, 1)
        self._down(body, frozenset())

    def _up(self, block: Sequence[Stmt], depth: int) -> Facts:
        self.depth = max(self.depth, depth)
        exposed: set[str] = set()
        assigned: set[str] = set()
        surely: set[str] = set()
        for stmt in block:
            facts = self._statement(stmt, depth)
            exposed |= facts.exposed - surely
            assigned |= facts.assigned
            surely |= facts.surely
        return Facts(frozenset(exposed), frozenset(assigned), frozenset(surely))

    def _statement(self, stmt: Stmt, depth: int) -> Facts:
        match stmt:
            case Assign(targets, values):
                self.names.update(targets)
                self._measure(values)
                names = frozenset(targets)
                return Facts(_reads(values), names, names)
            case Transfer(args):
                self._measure(args)
                return Facts(_reads(args), frozenset(), frozenset())
            case Table():
                return Facts(frozenset(), frozenset(), frozenset())
            case For():
                return self._for(stmt, depth)
            case If():
                return self._if(stmt, depth)

    def _measure(self, exprs: Sequence[Expr]) -> None:
        self.deepest = max([self.deepest, *(expr.depth for expr in exprs)])
        self.elements += sum(map(varying_elements, exprs))

    def _for(self, stmt: For, depth: int) -> Facts:
        self.names.add(stmt.target)
        before = len(self.loops)
        body = self._up(stmt.body, depth + 1)
        exposed = body.exposed - {stmt.target}
        nests = len(self.loops) > before
        self.loops[stmt] = Loop(body, sorted(exposed & body.assigned), nests)
        self._measure(stmt.limits())
        outside = exposed | reads_of(stmt)
        facts = Facts(outside, body.assigned | {stmt.target}, frozenset())
        self._facts[stmt] = facts
        return facts

    def _if(self, stmt: If, depth: int) -> Facts:
        blocks = [self._up(block, depth + 1) for _, block in stmt.branches]
        blocks.append(self._up(stmt.otherwise, depth + 1))
        conditions = [condition for condition, _ in stmt.branches]
        self._measure(conditions)
        exposed = _reads(conditions).union(*(b.exposed for b in blocks))
        assigned = frozenset[str]().union(*(b.assigned for b in blocks))
        surely = blocks[0].surely.intersection(*(b.surely for b in blocks))
        self.choices[stmt] = Choice(exposed)
        facts = Facts(exposed, assigned, surely)
        self._facts[stmt] = facts
        return facts

    def _down(self, block: Sequence[Stmt], after: frozenset[str]) -> None:
        live = set(after)
        for stmt in reversed(block):
            match stmt:
                case Assign(targets, values):
                    live.difference_update(targets)
                    live |= _reads(values)
                case Transfer(args):
                    live |= _reads(args)
                case Table():
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
            self.choices[stmt].keep = keep
            for _, block in stmt.branches:
                self._down(block, keep)
            self._down(stmt.otherwise, keep)
            return
        loop = self.loops[stmt]
        loop.keep = keep | frozenset(loop.carried)
        self._down(stmt.body, loop.keep)


def reads_of(loop: For) -> frozenset[str]:
    """The names in what a loop runs over."""
    return _reads(loop.limits())


def _reads(exprs: Sequence[Expr]) -> frozenset[str]:
    return frozenset[str]().union(*map(names_in, exprs))
