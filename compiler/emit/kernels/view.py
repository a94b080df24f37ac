"""view: Plan → the one value that the kernel templates print.

Each class of alike thread blocks (`classes`) becomes a function: its repeats become loops (`loops`,
`segments`), its numbers expressions or tables (`fit`), its primitives calls (`calls`, `function`).
Time is linear in the plan's primitives, in NumPy; the text's size is that of the pattern. If that
would be more calls than compilers are quick at, all thread blocks become the rows of tables instead
(`rows`).

An example: a ring AllGather on 6 ranks. At each rank, one thread block runs 6 primitives: one sends
the rank's own block, four pass on the block received last, one copies the own block to the output.

    primitive   0  1  2  3  4  5      A shape is mode, buffers, number of waits and posts. Those
    shape       a  b  b  b  c  d      that pass on, b, wait for one flag and raise one; the last, c,
                                      raises none. All ranks have the sequence abbbcd: one class.

`loops` finds the repeat of b, 3 times. The slot that a b reads is a matrix over (rank, i):

    rank 0      5  4  3               `fit` finds that it is (a line in rank + a line in i) modulo
    rank 1      0  5  4               the ranks: Sum(5, (Term(1, rank), Term(-1, i)), modulus=6).
    rank 2      1  0  5               `width` prints `(rank + 5 - i) % 6`; it is used twice, so
    ...                               `function` gives it a name:

    for (int i = 0; i < 3; ++i) {
      const int slot1 = (rank + 5 - i) % 6;
      hccc_prim<HCCC_COPY>(b, i + 1, 0, hccc_waits(i), hccc_from(hccc_output(b, rank, slot1)),
                           hccc_to(hccc_output(b, peer0, slot1)),
                           hccc_posts(hccc_post(peer0, i + 1)));
    }

As `rows`, the same block is a table of kinds, `0, 2, 2, 2, 1, 3, -1`, and for the numbers of kind 2
a column each: its flags `0, 1, 2`, and its slots counted from the own rank, `5, 4, 3`, which are
alike at every rank (`encodings`), so that all ranks share the table (`sharing`).

    for (int i = 0; kind[i] != -1; ++i) {
      switch (kind[i]) {
        case 2: {
          const int x0 = row0[i];
          const int x1 = (rank + row1[i]) % 6;
          hccc_prim<HCCC_COPY>(b, i, 0, hccc_waits(x0), hccc_from(hccc_output(b, rank, x1)), ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hccc.base.diagnostics import InternalError, fail
from hccc.base.version import __version__
from hccc.emit.kernels import own_reductions, rows, wrap
from hccc.emit.kernels.calls import Caller, caller
from hccc.emit.kernels.canonical import canonical
from hccc.emit.kernels.classes import Class, calls_in_line, classes
from hccc.emit.kernels.dispatch import DispatchCase, cases
from hccc.emit.kernels.forms import Lookup
from hccc.emit.kernels.function import FittedRepeat, Fitter, LookupTables, body, fitted_repeats
from hccc.emit.kernels.neighbours import Neighbours, neighbours
from hccc.emit.kernels.network_parts import NetworkParts
from hccc.emit.kernels.width import fits_int
from hccc.emit.targets import Target
from hccc.ir.choices import Accumulate, Bits
from hccc.ir.collective import Collective, OpType
from hccc.ir.kernel_shape import kernel_shape
from hccc.ir.plan import Plan

WARP = 32  # threads; HIP's wavefronts of 64 take two, nothing depends on it
# Above, bodies go out of line: what the calls keep alive then spills around them (at most 60 bytes
# seen), not inside their loops (up to 1 KB seen), and nvcc is two to three times faster.
INLINE_CALLS = 2
# Above, thread blocks become rows. A call takes nvcc about 0.1 s, and every class of blocks adds
# a few.
MOST_CALLS = 128
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}", re.ASCII)
LONGEST_SOURCE = 80
MULTICAST = {Bits.SAME: 1, Bits.ANY: 2}  # HCCC_MULTICAST (defaults.h)
DEFAULT_BITS = Accumulate.FLOAT32.bits  # of HCCC_ACCUMULATE, where it is not defined (types.h)


@dataclass(frozen=True, slots=True)
class FunctionView:
    """One class of thread blocks, as a function."""

    name: str
    parameters: str
    comment: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableView:
    """One lookup table: `const type name[dims] = { lines };`, `const` as the target spells it."""

    declaration: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramView:
    """The values that `kernel.jinja` prints for one target."""

    target: Target
    version: str
    name: str
    source: str
    collective: str
    accumulate: str
    constants: tuple[tuple[str, int | str], ...]
    tables: tuple[TableView, ...]
    functions: tuple[FunctionView, ...]
    cases: tuple[DispatchCase, ...]
    neighbours: Neighbours
    admission: tuple[str, ...]


def checked_name(plan: Plan) -> str:
    """Returns the plan's name, which reaches paths and source. Raises InternalError if it may
    not."""
    if not NAME.fullmatch(plan.name):
        raise InternalError(f"plan name {plan.name!r} is not a C identifier")
    return plan.name


def safe_comment(text: str) -> str:
    """Makes `text` safe for a comment: one line, printable, no end of comment, no path."""
    last = re.split(r"[/\\]", text)[-1]
    clean = "".join(c if c.isprintable() and c != "?" else "_" for c in last)
    return clean.replace("*/", "__").replace("/*", "__")[:LONGEST_SOURCE]


def view(plan: Plan, target: Target) -> ProgramView:
    """Returns the values of one target's translation unit."""
    return views(plan, [target])[0]


def views(plan: Plan, targets: Sequence[Target]) -> list[ProgramView]:
    """Returns the views of several targets, which share everything but the target."""
    name, plan = checked_name(plan), canonical(plan)
    if plan.greets and any(target.stream for target in targets):
        message = f"{plan.name}: ranks greet each other, which kernels of GPUs do not, so far"
        raise fail("E323", message, help="--protocol simple, or --target cpu")
    tables, moduli, calls = LookupTables(), interesting(plan), caller(plan)
    alike = classes(plan, calls.network)
    straight = calls_in_line(alike) <= MOST_CALLS
    made = _in_line(calls, alike, tables) if straight else _in_rows(calls, moduli, tables)
    near = neighbours(plan, moduli, tables, network=bool(calls.network.rows.any()))
    common = ProgramView(
        target=targets[0],
        version=__version__,
        name=name,
        source=safe_comment(plan.source),
        collective=describe(plan),
        accumulate=plan.sums,
        constants=_constants(plan, calls.network, made.calls),
        tables=tuple(_table(n, t) for n, t in tables.by_key.values()),
        functions=made.functions,
        cases=made.cases,
        neighbours=near,
        admission=tuple(_admission(plan)),
    )
    return [replace(common, target=target) for target in targets]


@dataclass(frozen=True, slots=True)
class _Functions:
    """The functions that execute thread blocks, the cases that choose among them, and the number of
    calls in them."""

    functions: tuple[FunctionView, ...]
    cases: tuple[DispatchCase, ...]
    calls: int


def _in_line(calls: Caller, alike: Sequence[Class], tables: LookupTables) -> _Functions:
    """Makes a function for each class."""
    plan, source, moduli = calls.plan, safe_comment(calls.plan.source), interesting(calls.plan)
    fitted = [
        (
            one,
            f"{plan.name}_blocks{k}",
            fitted_repeats(Fitter(calls, one, moduli, tables, {}), source),
        )
        for k, one in enumerate(alike)
    ]
    choice = cases([(a, n) for a, n, _ in fitted], plan.n_ranks, plan.gpus_per_node, tables)
    functions = tuple(_function(plan, a, n, repeats) for a, n, repeats in fitted)
    return _Functions(
        functions, choice, sum(len(r.calls) for *_, repeats in fitted for r in repeats)
    )


def _in_rows(calls: Caller, moduli: tuple[int, ...], tables: LookupTables) -> _Functions:
    """Makes one function for all thread blocks."""
    plan = calls.plan
    made, name = rows.body(calls, moduli, tables), f"{plan.name}_blocks"
    comment = f"All thread blocks: {len(plan):,} primitives of {made.calls} kinds, as rows."
    function = FunctionView(name, "hccc_block& b", comment, made.lines)
    return _Functions((function,), (DispatchCase((), (f"return {name}(b);",)),), made.calls)


def interesting(plan: Plan) -> tuple[int, ...]:
    """Returns numbers that are likely moduli of chunk, rank and slot arithmetic."""
    n, g, c = plan.n_ranks, max(1, plan.gpus_per_node), plan.collective
    per = c.chunks_per_block
    found = {n, g, n // g, c.n_chunks, per, per * g, n * per}
    if c.op is OpType.CUSTOM:
        found.add(c.chunks_per_rank)
    return tuple(sorted(m for m in found if m > 1))


def describe(plan: Plan) -> str:
    """Describes a plan: `Allreduce of 8 ranks, 8 chunks`."""
    return f"{describe_work(plan.collective)}, {plan.collective.n_chunks} chunks"


def describe_work(c: Collective) -> str:
    """Describes a collective: `Allreduce of 8 ranks`."""
    root = f" at rank {c.root}" if c.rooted else ""
    return f"{c.name} of {c.n_ranks} ranks{root}"


def user_blocks(c: Collective, of: Callable[[int], int]) -> str:
    """Returns C for a number of blocks, which differs at the root alone but in a demand."""
    if c.demand:
        blocks = np.array([of(rank) for rank in range(c.n_ranks)])
        last = np.flatnonzero(np.diff(blocks))
        until = [f"rank < {r + 1} ? {blocks[r]} : " for r in last.tolist()]
        return f"{''.join(until)}{blocks[-1]}"
    other = next((r for r in range(c.n_ranks) if r != c.root), c.root)
    at_root, elsewhere = of(c.root), of(other)
    if not c.rooted or at_root == elsewhere:
        return str(elsewhere)
    return f"rank == {c.root} ? {at_root} : {elsewhere}"


def _constants(plan: Plan, network: NetworkParts, calls: int) -> tuple[tuple[str, int | str], ...]:
    """Returns the macros that device.h needs before it is included."""
    operands = int((plan.src.counts() + plan.dst.counts()).max())
    bits = plan.accumulate.bits
    return (
        *(
            (f"HCCC_{name.upper()}", value)
            for name, value in kernel_shape(plan).constants().items()
        ),
        ("HCCC_THREADS", plan.warps * WARP),
        *([] if bits == DEFAULT_BITS else [("HCCC_ACCUMULATE", bits)]),
        *([("HCCC_MULTICAST", MULTICAST[plan.multicast])] if plan.multicast else []),
        *([("HCCC_UNEVEN", plan.collective.blocks)] if plan.collective.uneven else ()),
        *([("HCCC_OPERANDS", operands)] if operands > 2 * plan.n_ranks + 4 else ()),
        *(_user_blocks(plan) if plan.touches_peers() else [("HCCC_TOUCHES_PEERS", 0)]),
        *([("HCCC_NETWORK", 1)] if network.rows.any() else []),
        *([("HCCC_GREETS", 1)] if plan.greets else []),
        *own_reductions.constants(plan.reductions),
        ("HCCC_INLINE", int(calls * (2 if len(plan.queues) else 1) <= INLINE_CALLS)),
    )


def _user_blocks(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields the macros for the sizes of the buffers that must lie in windows."""
    c = plan.collective
    for name, of in (("INPUT", c.input_blocks), ("OUTPUT", c.output_blocks)):
        yield f"HCCC_{name}_BLOCKS(rank)", f"({user_blocks(c, of)})"


def _admission(plan: Plan) -> list[str]:
    """Returns C that restricts calls of an entry to those that the plan was proved for."""
    lines = []
    if not plan.in_place:
        lines.append("if (call && call->in_place) return HCCC_BAD_ARGUMENT;")
    if not plan.out_of_place:
        lines.append("if (call && !call->in_place) return HCCC_BAD_ARGUMENT;")
    if plan.default_window:
        most = plan.largest_window
        too_large = [f"  if (call->window > {most}) narrowed.window = {most};"] if most else []
        lines += [
            "hccc_call narrowed;",
            "if (call) {",
            "  narrowed = *call;",
            f"  if (!call->window) narrowed.window = {plan.default_window};",
            *too_large,
            "  call = &narrowed;",
            "}",
        ]
    return lines


def _function(plan: Plan, alike: Class, name: str, repeats: list[FittedRepeat]) -> FunctionView:
    first = next(iter(alike.ranks))
    ranks = f"{len(alike.ranks)} ranks" if len(alike.ranks) > 1 else f"rank {first}"
    ranks = "all ranks" if len(alike.ranks) == plan.n_ranks > 1 else ranks
    tbs = np.unique(alike.tbs).tolist()
    blocks = ("block " if len(tbs) == 1 else "blocks ") + ", ".join(map(str, tbs[:8]))
    more = ", ..." if len(tbs) > 8 else ""
    n = len(alike.shapes)
    comment = f"Thread {blocks}{more} of {ranks}: {n} primitive{'s' if n > 1 else ''}."
    parameters = "hccc_block& b, int turn" if alike.by_turn else "hccc_block& b"
    return FunctionView(name, parameters, comment, tuple(body(repeats, plan.gpus_per_node)))


def _table(name: str, lookup: Lookup) -> TableView:
    values = lookup.table
    if not fits_int(values):
        raise InternalError(f"{name} holds what is no int")
    kind = "short" if values.min() >= -(2**15) and values.max() < 2**15 else "int"
    dims = "".join(f"[{d}]" for d in values.shape)
    rows = values.reshape(-1, values.shape[-1]).tolist()
    lines = wrap.table(rows[0], 4) if values.ndim == 1 else _rows(rows, values.shape[:-1])
    return TableView(f"{kind} {name}{dims}", tuple(lines))


def _rows(rows: list[list[int]], outer: tuple[int, ...]) -> list[str]:
    """Writes nested initializer lists; `outer`: all dimensions but the last."""
    lines: list[str] = []
    for k, row in enumerate(rows):
        opened = closed = 0
        step = 1
        for size in reversed(outer[1:]):
            step *= size
            opened += k % step == 0
            closed += (k + 1) % step == 0
        packed = wrap.table(row, 5)
        packed[0] = " " * 4 + "{" * opened + "{" + packed[0].lstrip()
        packed[-1] += "}" + "}" * closed + ("," if k + 1 < len(rows) else "")
        lines += packed
    return lines
