"""expressions: evaluates expressions in all iterations of a frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hccc.ir.arrays import B1, I8
from hccc.lang.mistakes import clip, did_you_mean
from hccc.lang.transfer.budget import Budget
from hccc.lang.transfer.iterations import Frame
from hccc.lang.transfer.lists import (
    AnyValue,
    Lists,
    Mixed,
    elements,
    index,
    list_of_items,
    merged,
    varies,
)
from hccc.lang.transfer.syntax import (
    Assign,
    CallExpr,
    Chain,
    Conditional,
    Expr,
    FunctionDef,
    Index,
    Items,
    Logic,
    Name,
    NumberExpr,
    Prefix,
    StringExpr,
)
from hccc.lang.transfer.values import (
    BINARY,
    HIGH,
    LOW,
    EvaluationFault,
    Ints,
    Value,
    absolute,
    as_array,
    first,
    invert,
    maximum,
    minimum,
    negate,
    truth,
)

MIXTURE = "{} is a list in some iterations and a number, or another kind of list, in others"


class Expressions:
    """Evaluates expressions: `value(expr, frame)`. names: all variables of the program, for
    suggestions; constants: values visible to functions besides their parameters."""

    def __init__(
        self, budget: Budget, names: Iterable[str], constants: Mapping[str, AnyValue]
    ) -> None:
        self._budget, self._constants = budget, constants
        self._names = sorted(names)
        self._calls = 0  # the depth of calls of the program's functions

    def assign(self, stmt: Assign, frame: Frame) -> None:
        """Runs one assignment: all its values first, then its targets. Raises as `value`."""
        self._budget.spend(1)
        values = [self.any_value(value, frame) for value in stmt.values]
        for target, value in zip(stmt.targets, values, strict=True):
            frame.assign(target, value)

    def value(self, expr: Expr, frame: Frame) -> Value:
        """Returns the number in every iteration. Raises `EvaluationFault` for the first that
        fails."""
        return self._number(expr, self.any_value(expr, frame))

    def _number(self, expr: Expr, found: AnyValue) -> Value:
        if isinstance(found, int | Ints):
            return found
        help = "index it, `x[0]`, or ask for its `len(x)`"
        raise EvaluationFault(0, "E117", "a list cannot be used as a number", help).placed(expr.at)

    def any_value(self, expr: Expr, frame: Frame) -> AnyValue:
        """Returns the number or list in every iteration. Raises as `value`."""
        match expr:
            case Name():
                return self._name(expr, frame)
            case NumberExpr(number):
                if not LOW <= number <= HIGH:
                    raise EvaluationFault(0, "E103", f"{number} does not fit in 64 bits").placed(
                        expr.at
                    )
                return number
            case Chain():
                return self._chain(expr, frame)
            case Prefix():
                return self._prefix(expr, frame)
            case Logic():
                return self._logic(expr, frame)
            case CallExpr():
                return self._call(expr, frame)
            case Index():
                return self._index(expr, frame)
            case Items():
                return self._items(expr, frame)
            case Conditional():
                return self._conditional(expr, frame)
            case StringExpr(_, at):
                raise EvaluationFault(0, "E014", "a string cannot be used as a number").placed(at)

    def list_of(self, expr: Expr, frame: Frame, reason: str, help: str | None = None) -> Lists:
        """Returns the list in every iteration; `reason`: why one is needed. Raises as `value`."""
        return self._list(expr, self.any_value(expr, frame), reason, help)

    def _list(self, expr: Expr, found: AnyValue, reason: str, help: str | None = None) -> Lists:
        if isinstance(found, Lists):
            return found
        shown = f"`{clip(expr.id)}`" if isinstance(expr, Name) else "this"
        raise EvaluationFault(0, "E118", f"{reason}, and {shown} is a number", help).placed(expr.at)

    def numbers(self, expr: Expr, frame: Frame) -> Lists:
        """Returns the list of numbers that a loop runs over. Raises as `value`."""
        help = "`for i in range(n):`, or range(first, end) or range(first, end, stride)"
        found = self.list_of(expr, frame, "a loop runs over range(...) or a list", help)
        if isinstance(found.items, Ints):
            return found
        help = "loop over its positions: `for i in range(len(x)):`, and `x[i]` is a list"
        message = "a loop runs over a list of numbers, and this is a list of lists"
        raise EvaluationFault(0, "E117", message, help).placed(expr.at)

    def _call(self, call: CallExpr, frame: Frame) -> AnyValue:
        if call.own is not None:
            return self._own(call, call.own, frame)
        if call.function == "len":
            return self.list_of(call.args[0], frame, "len(...) is of a list").length
        result = self.value(call.args[0], frame)
        if call.function == "abs":
            self._budget.spend(frame.n)
            try:
                return absolute(result)
            except EvaluationFault as fault:
                raise fault.placed(call.at) from None
        select = minimum if call.function == "min" else maximum
        for arg in call.args[1:]:
            self._budget.spend(frame.n)
            result = select(result, self.value(arg, frame))
        return result

    def _own(self, call: CallExpr, function: FunctionDef, frame: Frame) -> AnyValue:
        """Evaluates a call of a function that the program defines, with variables of its own."""
        self._budget.call()
        seen = function.reads & self._constants.keys() - function.assigned
        known = {name: self._constants[name] for name in seen}
        given = [self.any_value(arg, frame) for arg in call.args]
        known |= zip(function.parameters, given, strict=True)
        inside = Frame(frame.n, known, self._budget)
        self._calls += 1
        try:
            for stmt in function.body:
                self.assign(stmt, inside)
            return self.any_value(function.result, inside)
        except EvaluationFault as fault:
            fault.calls.append((function.name, call.at))
            raise
        finally:
            self._calls -= 1

    def _index(self, expr: Index, frame: Frame) -> AnyValue:
        base = self.any_value(expr.base, frame)
        try:
            position = self.value(expr.position, frame)
        except EvaluationFault as fault:
            if isinstance(base, Lists) or fault.iteration == 0:
                raise
            position = 0  # the first iteration has this position, and no list
        found = self._list(expr.base, base, "only a list has elements")
        self._budget.spend(frame.n)
        try:
            return index(found, position)
        except EvaluationFault as fault:
            raise fault.placed(expr.position.at) from None

    def _items(self, expr: Items, frame: Frame) -> Lists:
        values = [self.any_value(item, frame) for item in expr.items]
        self._budget.spend(sum(map(elements, values)))
        self._budget.spend(len(values) * (frame.n if any(map(varies, values)) else 1))
        try:
            return list_of_items(values, frame.n)
        except EvaluationFault as fault:
            raise fault.placed(expr.at) from None

    def _conditional(self, expr: Conditional, frame: Frame) -> AnyValue:
        """Evaluates each branch only in the iterations that choose it."""
        self._budget.spend(frame.n)
        chosen = truth(self.value(expr.condition, frame))
        if isinstance(chosen, bool):
            return self.any_value(expr.then if chosen else expr.otherwise, frame)
        result: AnyValue | None = None
        for branch, here in (
            (expr.then, np.flatnonzero(chosen)),
            (expr.otherwise, np.flatnonzero(~chosen)),
        ):
            if len(here) == frame.n:
                return self.any_value(branch, frame)
            if len(here):
                value = self._part(branch, frame, here, expr.reads)
                self._budget.spend(elements(result) + elements(value))
                result = merged(result, value, here, frame.n)
        if result is None or isinstance(result, Mixed):
            raise EvaluationFault(0, "E119", MIXTURE.format("this")).placed(expr.at)
        return result

    def _part(self, expr: Expr, frame: Frame, here: I8, reads: frozenset[str]) -> AnyValue:
        """Returns the value in some iterations of `frame`."""
        try:
            return self.any_value(expr, frame.child(here, reads))
        except EvaluationFault as fault:
            fault.iteration = int(here[fault.iteration])
            raise

    def _name(self, name: Name, frame: Frame) -> AnyValue:
        if name.id not in frame.env:
            raise self._unknown(name, 0, frame)
        if name.id in frame.gaps:
            raise self._unknown(name, first(~frame.gaps[name.id]), frame)
        found = frame.env[name.id]
        if isinstance(found, Mixed):
            help = "give it another name where it is a list"
            fault = EvaluationFault(0, "E119", MIXTURE.format(f"`{clip(name.id)}`"), help)
            raise fault.placed(name.at)
        return found

    def _unknown(self, name: Name, iteration: int, frame: Frame) -> EvaluationFault:
        shown = clip(name.id)
        if name.id in self._names:
            sees = "a function sees its parameters, its own variables and what is above the header"
            message = f"`{shown}` has no value yet when this is reached"
            fault = EvaluationFault(iteration, "E101", message, sees if self._calls else None)
        else:
            near = did_you_mean(name.id, [*frame.env, *self._names])
            help = f"did you mean `{near[0]}`?" if near else None
            fault = EvaluationFault(iteration, "E101", f"there is no variable `{shown}`", help)
        return fault.placed(name.at)

    def _chain(self, chain: Chain, frame: Frame) -> Value:
        result = self.value(chain.first, frame)
        for link in chain.links:
            operand = self.value(link.operand, frame)
            iterations = 1 if isinstance(result, int) and isinstance(operand, int) else frame.n
            self._budget.spend(iterations)
            try:
                result = BINARY[link.op](result, operand)
            except EvaluationFault as fault:
                raise fault.placed(link.at) from None
        return result

    def _prefix(self, prefix: Prefix, frame: Frame) -> Value:
        operand = self.value(prefix.operand, frame)
        self._budget.spend(frame.n)
        try:
            match prefix.op:
                case "-":
                    return negate(operand)
                case "~":
                    return invert(operand)
                case "not":
                    return BINARY["=="](operand, 0)
            return operand
        except EvaluationFault as fault:
            raise fault.placed(prefix.at) from None

    def _logic(self, logic: Logic, frame: Frame) -> Value:
        """Evaluates each operand only in the iterations that the operands before left undecided."""
        settled = logic.op == "or"  # the truth that ends the evaluation
        result: bool | B1 = truth(self.value(logic.operands[0], frame))
        for operand in logic.operands[1:]:
            self._budget.spend(frame.n)
            undecided = np.flatnonzero(np.not_equal(result, settled))
            if not len(undecided):
                break
            if isinstance(result, bool) or len(undecided) == frame.n:
                result = truth(self.value(operand, frame))
                continue
            value = self._number(operand, self._part(operand, frame, undecided, logic.reads))
            result = result.copy()
            result[undecided] = as_array(value, len(undecided)) != 0
        return int(result) if isinstance(result, bool) else Ints(result.astype(np.int64), 0, 1)
