"""jobs: the second form of the transfer language, a header `HetCCLJob`: text to Job (docs/jobs.md).

    HetCCLJob(OpType="Broadcast", AlgoName="mine"):
        homColl(clusterOf[Root], broadcast, part(0), root=Root)
        for i in range(clusterOf[Root], clusterOf[Root] + nClusters - 1):
            c2cCpy(i % nClusters, (i + 1) % nClusters, part(0))

Everything but the header and the three statements is the language of programs: grammar, values,
evaluation. Variables of a body are nRanks, nClusters, nParts, Root, and the lists clusterOf (the
vendor cluster of each rank) and onBorder (1 for a border rank).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from lark import Lark
from numpy.typing import NDArray

from hccc.base.diagnostics import Source
from hccc.ir.arrays import I8
from hccc.ir.collective import Collective, block_count
from hccc.ir.job import (
    HOM_OPS,
    JOB_STEP,
    NOBODY,
    Job,
    JobOp,
    JobOrigin,
    VendorClusters,
    step_problems,
)
from hccc.ir.limits import MAX_CHUNKS
from hccc.lang.mistakes import At, Mistake, clip
from hccc.lang.tables import place, tables
from hccc.lang.transfer.calls import JOB_CALLS, named_arguments, value
from hccc.lang.transfer.evaluate import Constants, evaluate
from hccc.lang.transfer.header import HeaderKeys
from hccc.lang.transfer.iterations import EmittedRows
from hccc.lang.transfer.load import located
from hccc.lang.transfer.parse import SyntaxBuilder, parsed
from hccc.lang.transfer.preamble import JOB, program_tokens
from hccc.lang.transfer.syntax import (
    Assign,
    CallExpr,
    Expr,
    Items,
    Name,
    NumberExpr,
    TransferStmt,
    TransferTable,
)
from hccc.lang.transfer.values import Value, as_array

KEYS = ("OpType", "AlgoName", "nParts", "nClusters", "Root")
COLUMNS = JOB_STEP.names or ()
FORMS = {
    "homColl": ("cluster", "collective", "part", "root", "src", "dst"),
    "c2cCpy": ("srcCluster", "dstCluster", "part", "src", "dst"),
    "c2cRed": ("srcCluster", "dstCluster", "part"),
}
EXAMPLES = {
    "homColl": "homColl(cluster, reduce, part(0))",
    "c2cCpy": "c2cCpy(srcCluster, dstCluster, part(0))",
    "c2cRed": "c2cRed(srcCluster, dstCluster, part(0))",
}
_NAMES = {op.name.lower(): op for op in HOM_OPS}
_FAR = 1 << 30  # beyond every rank, part and vendor cluster


@dataclass(frozen=True, slots=True, eq=False)
class JobStmt(TransferStmt):
    """A step. args: source and destination vendor cluster, part, sender, receiver."""

    op: JobOp


def parse_job(source: Source, *divisions: VendorClusters) -> Job:
    """Parses the job in a text, over the first of these vendor clusters, or those of as many as
    `nClusters` in its header says.

    Raises:
        UserError: E0xx, E1xx as for programs; E120 a step does not fit the vendor clusters.
    """
    try:
        return _parsed(source, divisions)
    except Mistake as mistake:
        raise located(mistake, source) from None


def check_syntax(source: Source) -> None:
    """Checks what of a job's text does not depend on the vendor clusters. Raises UserError."""
    try:
        parsed(_parser(), program_tokens(source.text, JOB))
    except Mistake as mistake:
        raise located(mistake, source) from None


def _parsed(source: Source, divisions: Sequence[VendorClusters]) -> Job:
    v = divisions[0]
    syntax = parsed(_parser(), program_tokens(source.text, JOB))
    places = dict[int, At]()
    known = {"clusterOf": v.of_ranks().tolist(), "onBorder": [0] * v.n_ranks}
    for rank in v.borders.index.tolist():
        known["onBorder"][rank] = 1
    lists = [_literal(name, numbers, syntax.at) for name, numbers in known.items()]
    counts = (("nRanks", v.n_ranks), ("nClusters", len(v)))
    lists += [Assign([name], [NumberExpr(x, syntax.at)], syntax.at) for name, x in counts]
    constants = Constants([*lists, *syntax.constants])
    keys = HeaderKeys(syntax.pairs, syntax.at, constants.number, KEYS)
    wanted = keys.integer("nClusters", len(v), 1, v.n_ranks)
    if wanted != len(v):
        if others := [other for other in divisions if len(other) == wanted]:
            return _parsed(source, others)
        has = " or ".join(str(len(one)) for one in divisions)
        text = f"nClusters is {wanted}, and the cluster has {has} vendor clusters"
        raise Mistake("E120", text, keys.at("nClusters"))
    op, uneven = keys.op_type()
    blocks = block_count(op, v.n_ranks)
    parts = keys.integer("nParts", 1, 1, max(1, MAX_CHUNKS // blocks))
    root = keys.root(op, v.n_ranks)
    collective = Collective(op, v.n_ranks, blocks * parts, root, uneven)
    numbers = {"nParts": parts, **({"Root": root} if collective.rooted else {})}
    given = {**constants.values, **numbers}
    emitted = evaluate(syntax.body, given, collective, _StepSink(places))
    rows = np.concatenate([np.zeros((0, len(COLUMNS)), np.int64), *(c.rows for c in emitted)])
    steps = rows.astype(np.int32).view(JOB_STEP).reshape(-1)
    origin = JobOrigin({line: at.span(source) for line, at in places.items()})
    origin.spans[0] = keys.at("OpType").span(source)
    job = Job(keys.name(), collective, v, steps, origin)
    for i, why in sorted(step_problems(job))[:1]:
        at = places[int(steps["line"][i])]
        raise Mistake("E120", f"{job.describe(i)}: {why}", at)
    return job


def _literal(name: str, numbers: list[int], at: At) -> Assign:
    return Assign([name], [Items([NumberExpr(x, at) for x in numbers], at, 1)], at)


@cache
def _parser() -> Lark:
    return tables("hccc.lang.transfer", "transfer.lark", _JobBuilder())


class _JobBuilder(SyntaxBuilder):
    """Makes steps of the three statements of jobs; all else is as in programs."""

    def call(self, items: list[Any]) -> CallExpr:
        """Leaves the words of jobs to `expression`."""
        if str(items[0]) not in JOB_CALLS:
            return super().call(items)
        at = place(items[0]).to(place(items[-1]))
        args = [arg for arg in items[2:-1] if isinstance(arg, Expr)]
        return CallExpr(str(items[0]), args, at, 0, items[2 + len(args) : -1])

    def expression(self, items: list[Any]) -> TransferStmt:
        """Makes the step that a line says."""
        match items[0]:
            case CallExpr("homColl" | "c2cCpy" | "c2cRed"):
                return _step(items[0])
            case CallExpr("transfer", at=at):
                message = "transfer(...) is of programs, which begin with ResCCLAlgo"
                raise Mistake("E013", message, at, f"write `{EXAMPLES['c2cCpy']}`")
            case other:
                help = f"a step is {', '.join(f'`{one}`' for one in EXAMPLES.values())}"
                raise Mistake("E001", "this line does nothing", other.at, help)

    def table(self, items: list[Any]) -> TransferTable:
        """Refuses transfers."""
        message = "transfer(...) is of programs, which begin with ResCCLAlgo"
        raise Mistake("E013", message, items[0].table.at, f"write `{EXAMPLES['c2cCpy']}`")


def _step(call: CallExpr) -> JobStmt:
    form, example = FORMS[call.function], EXAMPLES[call.function]
    given = named_arguments(call, form)
    if missing := [name for name in form[:3] if name not in given] or call.args[len(form) :]:
        message = f"this {call.function} does not say {missing[0]}"
        if call.args[len(form) :]:
            message = f"{call.function} takes at most {len(form)} values"
        raise Mistake("E013", message, call.at, f"write `{example}`")
    if call.function == "homColl":
        op, src, dst = _collective(given["collective"]), given["cluster"], given["cluster"]
    else:
        op = JobOp.C2C_RED if call.function == "c2cRed" else JobOp.C2C_CPY
        src, dst = given["srcCluster"], given["dstCluster"]
    sender, receiver = _ends(op, given, call)
    args = [value(src), value(dst), _part(given["part"]), sender, receiver]
    return JobStmt(args, range(len(args)), op.reduces, call.at, call.at, op)


def _ends(op: JobOp, given: Mapping[str, Expr], call: CallExpr) -> tuple[Expr, Expr]:
    """Returns a step's sender and receiver; a root is what the collective makes of it."""
    nobody = NumberExpr(NOBODY, call.at)
    if "root" in given:
        root = value(given["root"])
        if op in (JobOp.REDUCE, JobOp.GATHER):
            return nobody, root
        if op in (JobOp.BROADCAST, JobOp.SCATTER):
            return root, nobody
        message = f"{op.name.lower()} has no root"
        raise Mistake("E013", message, root.at, "leave it out; send has `src=` and `dst=`")
    ends = [value(given[name]) if name in given else nobody for name in ("src", "dst")]
    return ends[0], ends[1]


def _collective(expr: Expr) -> JobOp:
    if isinstance(expr, Name) and expr.id in _NAMES:
        return _NAMES[expr.id]
    message = "the second value of a homColl is the call of the vendor's library"
    raise Mistake("E014", message, expr.at, f"one of {', '.join(_NAMES)}")


def _part(expr: Expr) -> Expr:
    match expr:
        case CallExpr("part", [one], keywords=()):
            return value(one)
        case _:
            message = f"a step's part is written `part(number)`, not `{clip(_shown(expr))}`"
            raise Mistake("E014", message, expr.at, "as in `c2cCpy(0, 1, part(0))`")


def _shown(expr: Expr) -> str:
    match expr:
        case NumberExpr(number):
            return str(number)
        case Name(word):
            return word
        case _:
            return "..."


@dataclass(frozen=True, slots=True)
class _StepSink:
    """Makes rows of a Job's steps: i8[n, 7], columns as in JOB_STEP. places: of each line."""

    places: dict[int, At]

    def check(self, stmt: TransferStmt, values: Sequence[Value], collective: Collective) -> None:
        """Leaves all checks to `step_problems`, which needs the whole Job."""

    def transfer(self, stmt: TransferStmt, values: Sequence[Value], iterations: int) -> EmittedRows:
        """Returns one row per iteration."""
        rows = np.empty((iterations, len(COLUMNS)), np.int64)
        rows[:, 0] = stmt.op if isinstance(stmt, JobStmt) else 0
        for column, one in enumerate(values, 1):
            rows[:, column] = as_array(one, iterations).clip(-_FAR, _FAR)
        self.places[stmt.at.line] = stmt.at
        rows[:, -1] = stmt.at.line
        return EmittedRows(np.arange(iterations), rows)

    def table(self, stmt: TransferTable, iterations: int) -> EmittedRows | None:
        """Returns nothing: a job has no literal transfers."""
        return None

    def leave_loop(self, rows: NDArray[Any], variable: Value, iteration: I8) -> NDArray[Any]:
        """Returns the rows unchanged."""
        return rows
