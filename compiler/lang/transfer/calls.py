"""calls: the functions of the language, and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hccc.lang.mistakes import At, Mistake, clip, did_you_mean
from hccc.lang.transfer.syntax import (
    CallExpr,
    Expr,
    FunctionDef,
    Name,
    NumberExpr,
    Steps,
    StringExpr,
    TransferStmt,
)

FUNCTIONS = ("transfer", "range", "min", "max", "abs", "len")
OPS = ("recv", "rrc")
JOB_CALLS = ("homColl", "c2cCpy", "c2cRed", "part")
RESERVED = frozenset({*FUNCTIONS, *OPS, "True", "False"})
TRANSFER = "transfer(srcRank, dstRank, step, chunkId, recv)"
PARAMETERS = ("srcRank", "dstRank", "step", "chunkId", "op")


def check_call(call: CallExpr, name_at: At, own: Mapping[str, FunctionDef]) -> None:
    """Raises `Mistake` for an unknown function, or wrong arguments.

    own: the functions that the program has defined so far.
    """
    function, count = call.function, len(call.args)
    if function not in FUNCTIONS and function not in own:
        raise _unknown_function(function, name_at, own)
    if any(isinstance(argument, Expr) for argument in call.keywords):
        help = "give the values without a name first"
        raise Mistake("E013", "a value without a name follows one with a name", call.at, help)
    if function == "transfer" or function in own:
        return
    if call.keywords:
        message = f"{function}(...) has no argument `{clip(call.keywords[0].name)}`"
        raise Mistake("E013", message, call.keywords[0].name_at, "write the value alone")
    if function in ("min", "max") and count < 2:
        raise Mistake("E013", f"{function}() needs at least two values", call.at)
    if function in ("abs", "len") and count != 1:
        raise Mistake("E013", f"{function}() takes one value, this has {count}", call.at)
    if function != "range":
        for argument in call.args:
            value(argument)


def _unknown_function(function: str, at: At, own: Mapping[str, FunctionDef]) -> Mistake:
    near = [name for name in FUNCTIONS if name == function.lower()]
    near = near or did_you_mean(function, [*own, *FUNCTIONS])
    known = (*FUNCTIONS, *map(clip, own))
    there = f"there are {', '.join(known[:-1])} and {known[-1]}; a function stands above its calls"
    help = f"did you mean `{near[0]}`?" if near else there
    return Mistake("E013", f"there is no function `{clip(function)}`", at, help)


def value(expr: Expr) -> Expr:
    """Returns `expr` where a value is needed. Raises `Mistake` if it is none."""
    match expr:
        case StringExpr(_, at):
            raise Mistake("E014", "a string cannot be used as a number", at)
        case CallExpr("range" as function, _, at) | CallExpr("transfer" as function, _, at):
            use = "after `for ... in`" if function == "range" else "as a statement of its own"
            raise Mistake("E013", f"{function}(...) can only stand {use}", at)
        case CallExpr(function, at=at, own=None) if function in JOB_CALLS:
            use = "in a step" if function == "part" else "as a statement of its own"
            raise Mistake("E013", f"{function}(...) can only stand {use}", at)
        case Name("recv" as word, at) | Name("rrc" as word, at):
            raise Mistake("E014", f"`{word}` can only be the last value of a transfer", at)
    return expr


def steps(call: CallExpr) -> Steps:
    """Returns the limits of a `range(...)`."""
    args = [value(arg) for arg in call.args]
    match args:
        case [stop]:
            return Steps(NumberExpr(0, call.at), stop, NumberExpr(1, call.at))
        case [start, stop]:
            return Steps(start, stop, NumberExpr(1, call.at))
        case [start, stop, step]:
            return Steps(start, stop, step)
    raise Mistake("E013", f"range takes 1 to 3 values, this has {len(args)}", call.at)


def transfer(call: CallExpr) -> TransferStmt:
    """Makes the statement of a `transfer(...)`."""
    given = named_arguments(call, PARAMETERS)
    if (len(given) < len(PARAMETERS) and not call.keywords) or len(call.args) > len(PARAMETERS):
        message = f"transfer takes 5 values, this has {len(call.args)}"
        help = f"write `{TRANSFER}`, with `recv` or `rrc` at the end"
        raise Mistake("E013", message, call.at, help)
    if missing := [name for name in PARAMETERS if name not in given]:
        message = f"this transfer does not say {' and '.join(missing)}"
        raise Mistake("E013", message, call.at, f"write `{TRANSFER}`")
    order = [PARAMETERS.index(name) for name in given if name != "op"]
    args = [value(given[name]) for name in PARAMETERS[:-1]]
    return TransferStmt(args, order, _reduces(given["op"]), given["op"].at, call.at)


def arguments(call: CallExpr, function: FunctionDef) -> list[Expr]:
    """Returns the arguments of a function that the program defines, in the order of its
    parameters."""
    wanted = function.parameters
    given = named_arguments(call, wanted)
    missing = [name for name in wanted if name not in given]
    if missing or len(call.args) > len(wanted):
        values = f"{len(wanted)} value{'' if len(wanted) == 1 else 's'}"
        count = len(call.args) + len(call.keywords)
        message = f"{clip(function.name)}(...) takes {values}, this has {count}"
        shown = ", ".join(wanted)
        raise Mistake("E013", message, call.at, f"it is `{clip(function.name)}({clip(shown)})`")
    return [value(given[name]) for name in wanted]


def named_arguments(call: CallExpr, parameters: Sequence[str]) -> dict[str, Expr]:
    """Returns the arguments of a call by name, in the order written."""
    given = dict(zip(parameters, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.name not in parameters:
            near = did_you_mean(keyword.name, parameters)
            has = f"it has {', '.join(parameters)}" if parameters else "it has none"
            help = f"did you mean `{near[0]}`?" if near else has
            message = f"{clip(call.function)}(...) has no argument `{clip(keyword.name)}`"
            raise Mistake("E013", message, keyword.name_at, help)
        if keyword.name in given:
            message = f"{keyword.name} is given twice"
            raise Mistake("E013", message, keyword.name_at)
        given[keyword.name] = keyword.value
    return given


def _reduces(op: Expr) -> bool:
    if isinstance(op, Name) and op.id in OPS:
        return op.id == "rrc"
    if isinstance(op, StringExpr) and op.value in OPS:
        raise Mistake("E014", f"write {op.value} without quotes", op.at)
    help = "recv copies the chunk, rrc reduces it into the destination's"
    raise Mistake("E014", "the last value of a transfer is `recv` or `rrc`", op.at, help)
