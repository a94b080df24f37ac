"""Evaluating expressions in all iterations of a frame."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hccc.ir.arrays import B1
from hccc.lang.complaint import clip, did_you_mean
from hccc.lang.transfer.budget import Budget
from hccc.lang.transfer.iterations import Frame
from hccc.lang.transfer.syntax import Call, Chain, Expr, Logic, Name, Number, Prefix, Text
from hccc.lang.transfer.values import (
    BINARY,
    HIGH,
    LOW,
    Fault,
    Ints,
    Value,
    as_array,
    first,
    invert,
    maximum,
    minimum,
    negate,
    truth,
)


class Expressions:
    """`value(expr, frame)`; `names` are all variables of the program, for suggestions."""

    def __init__(self, budget: Budget, names: Iterable[str]) -> None:
        self._budget = budget
        self._names = sorted(names)

    def value(self, expr: Expr, frame: Frame) -> Value:
        """The value in every iteration. Raises `Fault` for the first it fails in."""
        match expr:
            case Name():
                return self._name(expr, frame)
            case Number(number):
                if not LOW <= number <= HIGH:
                    raise Fault(0, "E103", f"{number} does not fit in 64 bits").placed(expr.at)
                return number
            case Chain():
                return self._chain(expr, frame)
            case Prefix():
                return self._prefix(expr, frame)
            case Logic():
                return self._logic(expr, frame)
            case Call(function, args):
                select = minimum if function == "min" else maximum
                result = self.value(args[0], frame)
                for arg in args[1:]:
                    self._budget.spend(frame.n)
                    result = select(result, self.value(arg, frame))
                return result
            case Text(_, at):
                raise Fault(0, "E014", "a string cannot be used as a number").placed(at)

    def _name(self, name: Name, frame: Frame) -> Value:
        if name.id not in frame.env:
            raise self._unknown(name, 0)
        if name.id in frame.gaps:
            raise self._unknown(name, first(~frame.gaps[name.id]))
        return frame.env[name.id]

    def _unknown(self, name: Name, iteration: int) -> Fault:
        shown = clip(name.id)
        if name.id in self._names:
            fault = Fault(iteration, "E101", f"`{shown}` has no value yet when this is reached")
        else:
            near = did_you_mean(name.id, self._names)
            help = f"did you mean `{near[0]}`?" if near else None
            fault = Fault(iteration, "E101", f"there is no variable `{shown}`", help)
        return fault.placed(name.at)

    def _chain(self, chain: Chain, frame: Frame) -> Value:
        result = self.value(chain.first, frame)
        for link in chain.links:
            operand = self.value(link.operand, frame)
            iterations = 1 if isinstance(result, int) and isinstance(operand, int) else frame.n
            self._budget.spend(iterations)
            try:
                result = BINARY[link.op](result, operand)
            except Fault as fault:
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
        except Fault as fault:
            raise fault.placed(prefix.at) from None

    def _logic(self, logic: Logic, frame: Frame) -> Value:
        """Each operand is evaluated only in the iterations that the ones before left undecided."""
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
            part = frame.child(undecided, logic.reads)
            try:
                value = self.value(operand, part)
            except Fault as fault:
                fault.iteration = int(undecided[fault.iteration])
                raise
            result = result.copy()
            result[undecided] = as_array(value, part.n) != 0
        return int(result) if isinstance(result, bool) else Ints(result.astype(np.int64), 0, 1)
