"""Running a program over whole arrays of loop iterations.

`for` turns the n lanes around it into one lane per iteration, in batches of at most `MAX_LANES`,
and runs its body once for all of them. Loops that carry a variable from one iteration to the next
run one iteration at a time, still over all lanes around them. Errors are those of a one-by-one
execution: when a batch fails in some lane it is run again for the lanes before, until none fails.

Cost: about 25 array operations per transfer of a hierarchical mesh, some 50 ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hccc.diagnostics import InternalError
from hccc.ir.arrays import B1, I8
from hccc.ir.collective import Collective
from hccc.lang.transfer import ranges
from hccc.lang.transfer.budget import Budget, TooMuch
from hccc.lang.transfer.checks import check_table, check_transfer
from hccc.lang.transfer.expressions import Expressions
from hccc.lang.transfer.iterations import Chunk, Frame
from hccc.lang.transfer.liveness import Liveness, reads_of
from hccc.lang.transfer.ranges import Range
from hccc.lang.transfer.sink import Sink
from hccc.lang.transfer.syntax import Assign, Expr, For, If, Stmt, Table, Transfer, names_in
from hccc.lang.transfer.values import Fault, Ints, Value, bounds, lane_value, take, tight, truth

MAX_LANES = 1 << 16  # arrays of half a megabyte stay in the cache, and lanes sort as 16 bits
MAX_ELEMENTS = 1 << 27  # of all variables of all nested frames together: 1 GiB
ROWS_PER_BATCH = 1 << 20
FIRST_LANES = 64  # of a loop around loops, before it is known how much they emit


def evaluate(
    body: Sequence[Stmt], header: Mapping[str, int], collective: Collective, sink: Sink
) -> list[Chunk]:
    """All that `body` emits, in program order. Raises `Fault` or `TooMuch`."""
    return _Evaluator(body, header, collective, sink).run(header)


class _Evaluator:
    def __init__(
        self, body: Sequence[Stmt], header: Mapping[str, int], collective: Collective, sink: Sink
    ) -> None:
        self._body, self._collective, self._sink = body, collective, sink
        self._live = Liveness(body)
        self._budget = Budget()
        names = self._live.names | set(header)
        self._expressions = Expressions(self._budget, names)
        deep = (len(names) + 1) * (self._live.depth + self._live.deepest)
        self._max_lanes = max(1, min(MAX_LANES, MAX_ELEMENTS // deep))
        # How many lanes to give a loop: learnt from what it emitted in the batch before.
        few = min(FIRST_LANES, self._max_lanes)
        loops = self._live.loops.items()
        self._width = {stmt: few if loop.nests else self._max_lanes for stmt, loop in loops}

    def run(self, header: Mapping[str, int]) -> list[Chunk]:
        frame = Frame(1, dict(header))
        self._block(self._body, frame)
        return frame.emitted()

    def _block(self, block: Sequence[Stmt], frame: Frame) -> None:
        for stmt in block:
            match stmt:
                case Assign(target, value):
                    self._budget.spend(1)
                    frame.assign(target, self._expressions.value(value, frame))
                case Transfer():
                    self._transfer(stmt, frame)
                case Table():
                    self._table(stmt, frame)
                case For():
                    self._for(stmt, frame)
                case If():
                    self._if(stmt, frame)

    def _transfer(self, stmt: Transfer, frame: Frame) -> None:
        values = [self._expressions.value(arg, frame) for arg in stmt.args]
        self._budget.spend(frame.n * 4)
        check_transfer(stmt, values, self._collective)
        self._budget.transfer(frame.n, stmt.at)
        chunk = self._sink.transfer(stmt, values, frame.n)
        if chunk:
            frame.emit(chunk.lane, chunk.rows)

    def _table(self, stmt: Table, frame: Frame) -> None:
        self._budget.spend(len(stmt.line))
        check_table(stmt, self._collective)
        self._budget.transfer(len(stmt.line) * frame.n, stmt.at)
        chunk = self._sink.table(stmt, frame.n)
        if chunk:
            frame.emit(chunk.lane, chunk.rows)

    def _if(self, stmt: If, frame: Frame) -> None:
        """Each branch runs for the lanes that its condition, and those before, leave it."""
        choice = self._live.choices[stmt]
        lanes = np.arange(frame.n)
        for condition, block in stmt.branches:
            chosen = self._condition(condition, frame, lanes)
            self._part(block, frame, lanes[chosen], choice.exposed, choice.keep)
            lanes = lanes[~chosen]
            if not len(lanes):
                return
        self._part(stmt.otherwise, frame, lanes, choice.exposed, choice.keep)

    def _condition(self, condition: Expr, frame: Frame, lanes: I8) -> B1:
        whole = len(lanes) == frame.n
        part = frame if whole else frame.child(lanes, names_in(condition))
        self._budget.spend(part.n)
        try:
            return np.broadcast_to(truth(self._expressions.value(condition, part)), part.n)
        except Fault as fault:
            fault.lane = int(lanes[fault.lane])
            raise

    def _part(
        self,
        block: Sequence[Stmt],
        frame: Frame,
        lanes: I8,
        reads: frozenset[str],
        keep: frozenset[str],
    ) -> None:
        """Runs `block` in some lanes of `frame`."""
        if len(lanes) == frame.n:
            return self._block(block, frame)
        if not len(lanes) or not block:
            return
        part = frame.child(lanes, reads)
        try:
            self._block(block, part)
        except Fault as fault:
            fault.lane = int(lanes[fault.lane])
            raise
        frame.adopt(part, lanes, keep)
        for chunk in part.emitted():
            frame.emit(lanes[chunk.lane], chunk.rows)

    def _range(self, stmt: For, frame: Frame) -> tuple[Range, Value]:
        """The range of a loop, and how many iterations that is in every lane."""
        limits = stmt.start, stmt.stop, stmt.step
        start, stop, step = (self._expressions.value(limit, frame) for limit in limits)
        try:
            return (start, stop, step), ranges.lengths((start, stop, step), frame.n)
        except Fault as fault:
            raise fault.placed(stmt.at) from None

    def _foresee(self, stmt: For, frame: Frame, times: int) -> None:
        """Refuses, before any of it runs, a nest whose loops do not depend on each other."""
        try:
            counts = self._range(stmt, frame)[1]
        except Fault:
            return  # where it is reached, if it is, this is an error of its own
        if not isinstance(counts, int):
            return
        times *= counts
        self._budget.foresee_iterations(times, stmt.at)
        body = self._live.loops[stmt].body
        for inner in stmt.body:
            match inner:
                case Transfer(at=at):
                    self._budget.foresee_transfers(times, at)
                case For() if not reads_of(inner) & (body.assigned | {stmt.target}):
                    self._foresee(inner, frame, times)
                case _:
                    pass

    def _for(self, stmt: For, frame: Frame) -> None:
        over, counts = self._range(stmt, frame)
        if self._live.loops[stmt].nests:
            self._foresee(stmt, frame, 1)
        self._budget.iterate(ranges.total(counts, frame.n), stmt.at)
        if self._live.loops[stmt].carried:
            self._one_by_one(stmt, over, counts, frame)
        else:
            self._all_at_once(stmt, over, counts, frame)

    def _one_by_one(self, stmt: For, over: Range, counts: Value, frame: Frame) -> None:
        loop = self._live.loops[stmt]
        rounds = bounds(tight(counts))[1]
        self._budget.iterate_one_by_one(rounds, loop.carried[0], stmt.at)
        every = np.arange(frame.n)
        for turn in range(rounds):
            lanes = every if isinstance(counts, int) else np.flatnonzero(counts.data > turn)
            self._turn(stmt, over, turn, frame, lanes)

    def _turn(self, stmt: For, over: Range, turn: int, frame: Frame, lanes: I8) -> None:
        """One iteration of a carrying loop, in the lanes that get that far."""
        loop = self._live.loops[stmt]
        whole = len(lanes) == frame.n
        if whole:
            part = Frame(frame.n, frame.env, frame.gaps)
        else:
            part = frame.child(lanes, loop.body.exposed)
        value = ranges.in_turn(over, turn, lanes)
        part.assign(stmt.target, value)
        try:
            self._block(stmt.body, part)
        except Fault as fault:
            fault.loops.insert(0, (stmt.target, lane_value(value, fault.lane)))
            fault.lane = int(lanes[fault.lane])
            raise
        if not whole:
            frame.adopt(part, lanes, loop.keep)
        self._hand_over(part, frame, lanes, value)

    def _all_at_once(self, stmt: For, over: Range, counts: Value, frame: Frame) -> None:
        total = ranges.total(counts, frame.n)
        begin = 0
        while begin < total:
            end = min(begin + self._width[stmt], total)
            lane, turn = ranges.owners(counts, begin, end)
            before = self._budget.transfers
            self._batch(stmt, frame, lane, ranges.variable(over, lane, turn))
            rows_a_lane = (self._budget.transfers - before) // (end - begin)
            fitting = ROWS_PER_BATCH // max(1, rows_a_lane)
            self._width[stmt] = max(1, min(self._max_lanes, fitting))
            begin = end

    def _batch(self, stmt: For, frame: Frame, lane: I8, variable: Ints) -> None:
        """Runs the body for one batch of iterations. Raises the first `Fault` in program order."""
        transfers = self._budget.transfers
        fault: Fault | None = None
        part: Frame | None = None
        n = len(lane)
        while n:
            self._budget.transfers = transfers
            try:
                part = self._iterations(stmt, frame, lane[:n], take(variable, slice(n)))
                break
            except Fault as found:
                fault, n = found, found.lane
            except TooMuch:
                if not fault:
                    raise
                break
        if fault:
            fault.loops.insert(0, (stmt.target, lane_value(variable, fault.lane)))
            fault.lane = int(lane[fault.lane])
            raise fault
        if part is None:
            raise InternalError("a batch without iterations")
        frame.adopt(part, lane, self._live.loops[stmt].keep)
        self._hand_over(part, frame, lane, variable)

    def _iterations(self, stmt: For, frame: Frame, lane: I8, variable: Value) -> Frame:
        part = frame.child(lane, self._live.loops[stmt].body.exposed)
        part.assign(stmt.target, variable)
        self._budget.spend(part.n)
        self._block(stmt.body, part)
        return part

    def _hand_over(self, part: Frame, frame: Frame, lanes: I8, variable: Value) -> None:
        """What the iterations `part` of a loop emitted becomes what `frame` emitted."""
        for chunk in part.emitted():
            rows = self._sink.leave(chunk.rows, variable, chunk.lane)
            frame.emit(lanes[chunk.lane], rows)
