"""evaluate: runs a program over whole arrays of loop iterations.

A `for` inside n iterations of the loops around it makes batches of at most `MAX_BATCH` of its own
iterations, over all n, and runs its body once per batch. A loop that carries a variable from one
iteration to the next runs them one after the other, each still over all n around it. Errors are
the same as in a one-by-one execution: when a batch fails in some iteration, the iterations before
that one run again, until none fails.

Cost: about 25 array operations per transfer of a hierarchical mesh, some 50 ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hccc.base.diagnostics import InternalError
from hccc.ir.arrays import B1, I8
from hccc.ir.collective import Collective
from hccc.lang.transfer import ranges
from hccc.lang.transfer.budget import Budget, TooMuch
from hccc.lang.transfer.checks import check_table
from hccc.lang.transfer.expressions import Expressions
from hccc.lang.transfer.iterations import EmittedRows, Frame
from hccc.lang.transfer.lists import AnyValue
from hccc.lang.transfer.liveness import Liveness, reads_of
from hccc.lang.transfer.ranges import LoopSource
from hccc.lang.transfer.sink import Sink
from hccc.lang.transfer.syntax import (
    Assign,
    Expr,
    For,
    If,
    Steps,
    Stmt,
    TransferStmt,
    TransferTable,
    names_in,
)
from hccc.lang.transfer.values import (
    EvaluationFault,
    Ints,
    Value,
    bounds,
    iteration_value,
    take,
    tight,
    truth,
)

MAX_BATCH = 1 << 16  # arrays of half a megabyte stay in the cache, and sort by 16-bit keys
MAX_ELEMENTS = 1 << 27  # of all variables of all nested frames together: 1 GiB
ROWS_PER_BATCH = 1 << 20
FIRST_BATCH = 64  # of a loop around loops, before it is known how much they emit


def evaluate(
    body: Sequence[Stmt], variables: Mapping[str, AnyValue], collective: Collective, sink: Sink
) -> list[EmittedRows]:
    """Returns the rows that `body` emits, in program order. Raises `EvaluationFault` or
    `TooMuch`."""
    return _Evaluator(body, variables, collective, sink).run(variables)


class Constants:
    """The `values` of the assignments above a header. Raises `EvaluationFault` or `TooMuch`."""

    def __init__(self, statements: Sequence[Assign]) -> None:
        self.values: dict[str, AnyValue] = {}
        self._frame = Frame(1, self.values, Budget())
        names = [name for stmt in statements for name in stmt.targets]
        self._expressions = Expressions(self._frame.budget, names, self.values)
        for stmt in statements:
            self._expressions.assign(stmt, self._frame)

    def number(self, expr: Expr) -> int:
        """Returns the value of an expression that only reads constants. Raises as the
        constructor."""
        return iteration_value(self._expressions.value(expr, self._frame), 0)


class _Evaluator:
    def __init__(
        self,
        body: Sequence[Stmt],
        variables: Mapping[str, AnyValue],
        collective: Collective,
        sink: Sink,
    ) -> None:
        self._body, self._collective, self._sink = body, collective, sink
        self._live = Liveness(body)
        self._budget = Budget()
        names = self._live.names | set(variables)
        self._expressions = Expressions(self._budget, names, variables)
        deep = (len(names) + self._live.elements + 1) * (self._live.depth + self._live.deepest)
        self._max_batch = max(1, min(MAX_BATCH, MAX_ELEMENTS // deep))
        # Iterations of a loop's next batch, learnt from the rows of the batch before.
        few = min(FIRST_BATCH, self._max_batch)
        loops = self._live.loops.items()
        self._width = {stmt: few if loop.nests else self._max_batch for stmt, loop in loops}

    def run(self, variables: Mapping[str, AnyValue]) -> list[EmittedRows]:
        frame = Frame(1, dict(variables), self._budget)
        self._block(self._body, frame)
        return frame.emitted()

    def _block(self, block: Sequence[Stmt], frame: Frame) -> None:
        for stmt in block:
            match stmt:
                case Assign():
                    self._expressions.assign(stmt, frame)
                case TransferStmt():
                    self._transfer(stmt, frame)
                case TransferTable():
                    self._table(stmt, frame)
                case For():
                    self._for(stmt, frame)
                case If():
                    self._if(stmt, frame)

    def _transfer(self, stmt: TransferStmt, frame: Frame) -> None:
        found = {i: self._expressions.value(stmt.args[i], frame) for i in stmt.order}
        values = [found[i] for i in range(len(stmt.args))]
        self._budget.spend(frame.n * 4)
        self._sink.check(stmt, values, self._collective)
        self._budget.transfer(frame.n, stmt.at)
        chunk = self._sink.transfer(stmt, values, frame.n)
        if chunk:
            frame.emit(chunk.iteration, chunk.rows)

    def _table(self, stmt: TransferTable, frame: Frame) -> None:
        self._budget.spend(len(stmt.line))
        check_table(stmt, self._collective)
        self._budget.transfer(len(stmt.line) * frame.n, stmt.at)
        chunk = self._sink.table(stmt, frame.n)
        if chunk:
            frame.emit(chunk.iteration, chunk.rows)

    def _if(self, stmt: If, frame: Frame) -> None:
        """Runs each branch for the iterations that fulfil its condition and no earlier one."""
        branch = self._live.branches[stmt]
        iterations = np.arange(frame.n)
        for condition, block in stmt.branches:
            chosen = self._condition(condition, frame, iterations)
            self._part(block, frame, iterations[chosen], branch.exposed, branch.keep)
            iterations = iterations[~chosen]
            if not len(iterations):
                return
        self._part(stmt.otherwise, frame, iterations, branch.exposed, branch.keep)

    def _condition(self, condition: Expr, frame: Frame, iterations: I8) -> B1:
        whole = len(iterations) == frame.n
        part = frame if whole else frame.child(iterations, names_in(condition))
        self._budget.spend(part.n)
        try:
            return np.broadcast_to(truth(self._expressions.value(condition, part)), part.n)
        except EvaluationFault as fault:
            fault.iteration = int(iterations[fault.iteration])
            raise

    def _part(
        self,
        block: Sequence[Stmt],
        frame: Frame,
        iterations: I8,
        reads: frozenset[str],
        keep: frozenset[str],
    ) -> None:
        """Runs `block` in some iterations of `frame`."""
        if len(iterations) == frame.n:
            return self._block(block, frame)
        if not len(iterations) or not block:
            return
        part = frame.child(iterations, reads)
        try:
            self._block(block, part)
        except EvaluationFault as fault:
            fault.iteration = int(iterations[fault.iteration])
            raise
        frame.adopt(part, iterations, keep)
        for chunk in part.emitted():
            frame.emit(iterations[chunk.iteration], chunk.rows)

    def _over(self, stmt: For, frame: Frame) -> tuple[LoopSource, Value]:
        """Returns the range or list of a loop, and its length in each iteration of `frame`."""
        over: LoopSource
        match stmt.over:
            case Steps():
                start, stop, step = (self._expressions.value(x, frame) for x in stmt.limits())
                over = start, stop, step
            case expr:
                over = self._expressions.numbers(expr, frame)
        try:
            return over, ranges.lengths(over, frame.n)
        except EvaluationFault as fault:
            raise fault.placed(stmt.at) from None

    def _foresee(self, stmt: For, frame: Frame, times: int) -> None:
        """Raises `TooMuch` before a nest of independent loops runs, if it is too large."""
        try:
            counts = self._over(stmt, frame)[1]
        except EvaluationFault:
            return  # if the loop is reached, this is an error of its own
        if not isinstance(counts, int):
            return
        times *= counts
        self._budget.foresee_iterations(times, stmt.at)
        body = self._live.loops[stmt].body
        for inner in stmt.body:
            match inner:
                case TransferStmt(at=at):
                    self._budget.foresee_transfers(times, at)
                case For() if not reads_of(inner) & (body.assigned | {stmt.target}):
                    self._foresee(inner, frame, times)
                case _:
                    pass

    def _for(self, stmt: For, frame: Frame) -> None:
        over, counts = self._over(stmt, frame)
        if self._live.loops[stmt].nests:
            self._foresee(stmt, frame, 1)
        self._budget.iterate(ranges.total(counts, frame.n), stmt.at)
        if self._live.loops[stmt].carried:
            self._one_by_one(stmt, over, counts, frame)
        else:
            self._all_at_once(stmt, over, counts, frame)

    def _one_by_one(self, stmt: For, over: LoopSource, counts: Value, frame: Frame) -> None:
        loop = self._live.loops[stmt]
        rounds = bounds(tight(counts))[1]
        self._budget.iterate_one_by_one(rounds, loop.carried[0], stmt.at)
        every = np.arange(frame.n)
        for round_ in range(rounds):
            iterations = every if isinstance(counts, int) else np.flatnonzero(counts.data > round_)
            self._round(stmt, over, round_, frame, iterations)

    def _round(
        self, stmt: For, over: LoopSource, round_: int, frame: Frame, iterations: I8
    ) -> None:
        """Runs one iteration of a carrying loop, in the outer iterations that get that far."""
        loop = self._live.loops[stmt]
        whole = len(iterations) == frame.n
        if whole:
            part = Frame(frame.n, frame.env, self._budget, frame.gaps)
        else:
            part = frame.child(iterations, loop.body.exposed)
        value = ranges.in_round(over, round_, iterations)
        part.assign(stmt.target, value)
        try:
            self._block(stmt.body, part)
        except EvaluationFault as fault:
            fault.loops.insert(0, (stmt.target, iteration_value(value, fault.iteration)))
            fault.iteration = int(iterations[fault.iteration])
            raise
        if not whole:
            frame.adopt(part, iterations, loop.keep)
        self._hand_over(part, frame, iterations, value)

    def _all_at_once(self, stmt: For, over: LoopSource, counts: Value, frame: Frame) -> None:
        total = ranges.total(counts, frame.n)
        begin = 0
        while begin < total:
            end = min(begin + self._width[stmt], total)
            iteration, round_ = ranges.owners(counts, begin, end)
            before = self._budget.transfers
            self._batch(stmt, frame, iteration, ranges.variable(over, iteration, round_))
            rows_an_iteration = (self._budget.transfers - before) // (end - begin)
            fitting = ROWS_PER_BATCH // max(1, rows_an_iteration)
            self._width[stmt] = max(1, min(self._max_batch, fitting))
            begin = end

    def _batch(self, stmt: For, frame: Frame, iteration: I8, variable: Ints) -> None:
        """Runs the body for one batch of iterations. Raises the first fault in program order."""
        transfers = self._budget.transfers
        fault: EvaluationFault | None = None
        part: Frame | None = None
        n = len(iteration)
        while n:
            self._budget.transfers = transfers
            try:
                part = self._iterations(stmt, frame, iteration[:n], take(variable, slice(n)))
                break
            except EvaluationFault as found:
                fault, n = found, found.iteration
            except TooMuch:
                if not fault:
                    raise
                break
        if fault:
            fault.loops.insert(0, (stmt.target, iteration_value(variable, fault.iteration)))
            fault.iteration = int(iteration[fault.iteration])
            raise fault
        if part is None:
            raise InternalError("a batch of no iterations")
        frame.adopt(part, iteration, self._live.loops[stmt].keep)
        self._hand_over(part, frame, iteration, variable)

    def _iterations(self, stmt: For, frame: Frame, iteration: I8, variable: Value) -> Frame:
        part = frame.child(iteration, self._live.loops[stmt].body.exposed)
        part.assign(stmt.target, variable)
        self._budget.spend(part.n)
        self._block(stmt.body, part)
        return part

    def _hand_over(self, part: Frame, frame: Frame, iterations: I8, variable: Value) -> None:
        """Adds the rows emitted by the iterations `part` of a loop to those of `frame`."""
        for chunk in part.emitted():
            rows = self._sink.leave_loop(chunk.rows, variable, chunk.iteration)
            frame.emit(iterations[chunk.iteration], rows)
