"""function: a Class of thread blocks → one C++ function of straight-line calls and loops.

Numbers that do not depend on the loop and occur more than once become locals at the top; those
that occur more than once in a loop become locals of the loop; the rest stands where it is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hccc.emit.kernels import wrap
from hccc.emit.kernels.calls import Argument, Call, Caller, Number, numbers_of
from hccc.emit.kernels.classes import Class
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Form, Grid, Lookup, cost, names
from hccc.emit.kernels.loops import Run
from hccc.emit.kernels.segments import pieces
from hccc.emit.kernels.width import code, text
from hccc.ir.arrays import I8

LINES_NAMED = 4  # source lines listed at a primitive
SHORT = 8  # characters of an expression that is not worth a name


@dataclass(frozen=True, slots=True)
class Fitted:
    """A call with forms in place of arrays."""

    function: str
    arguments: tuple[Fitted | Named | str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A number's C expression; `name` is what its local would be called."""

    name: str
    text: str
    looped: bool
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a function, fitted: a call per shape of its period."""

    run: Run
    calls: tuple[Fitted, ...]
    comments: tuple[str, ...]


@dataclass(slots=True)
class Tables:
    """The lookup tables of a file; equal ones are one. Grows while functions are made."""

    by_key: dict[tuple[object, ...], tuple[str, Lookup]] = field(default_factory=dict)

    def name(self, lookup: Lookup) -> str:
        """What the table is called."""
        key = lookup.key()
        if key not in self.by_key:
            self.by_key[key] = (f"hccc_table{len(self.by_key)}", lookup)
        return self.by_key[key][0]


@dataclass(frozen=True, slots=True, eq=False)
class Fitter:
    """Fits the numbers of one class; remembers equal arrays."""

    caller: Caller
    alike: Class
    moduli: tuple[int, ...]
    tables: Tables
    known: dict[tuple[object, ...], Form]

    def grid(self, run: Run) -> Grid:
        """The class's axes and the loop's."""
        axis = Axis("i", np.arange(run.count))
        return Grid((*self.alike.grid.axes, axis), self.alike.grid.gpus)

    def rows(self, run: Run, q: int) -> I8:
        """The primitives at position `q` of the run's body: i8[grid(run).shape]."""
        return self.alike.start[..., None] + run.start + q + run.period * np.arange(run.count)

    def call(self, run: Run, q: int) -> Call:
        """The call at position `q` of the run's body."""
        prim = run.start + q + run.period * np.arange(run.count)
        rows = self.rows(run, q)
        return self.caller.primitive(rows, np.broadcast_to(prim, rows.shape))

    def form(self, values: I8, run: Run) -> Form:
        """The form of one number over a run."""
        grid = self.grid(run)
        key = (grid.shape, values.tobytes())
        if key not in self.known:
            self.known[key] = fit(values, grid, self.moduli)
        return self.known[key]

    def numbers(self, run: Run) -> Iterator[Number]:
        """All numbers of a run."""
        for q in range(run.period):
            yield from numbers_of(self.call(run, q))

    def price(self, run: Run) -> tuple[int, int]:
        """Entries of tables the run needs: all, and those that depend on the loop."""
        forms = {id(f): f for f in (self.form(n.values, run) for n in self.numbers(run))}
        priced = [(cost(f)[0], "i" in names(f)) for f in forms.values()]
        return sum(c for c, _ in priced), sum(c for c, looped in priced if looped)

    def step(self, run: Run, source: str) -> Step:
        """A run with its numbers fitted."""
        calls = tuple(self._fitted(self.call(run, q), run) for q in range(run.period))
        comments = tuple(self._comment(run, q, source) for q in range(run.period))
        return Step(run, calls, comments)

    def _fitted(self, call: Call, run: Run) -> Fitted:
        return Fitted(call.function, tuple(self._argument(a, run) for a in call.arguments))

    def _argument(self, argument: Argument, run: Run) -> Fitted | Named | str:
        if isinstance(argument, Call):
            return self._fitted(argument, run)
        if isinstance(argument, str):
            return argument
        form = self.form(argument.values, run)
        reads = frozenset(names(form))
        value = code(form, self.grid(run), self.tables.name)
        return Named(argument.name, value, "i" in reads, reads)

    def _comment(self, run: Run, q: int, source: str) -> str:
        """`ring.rccl:14, sub-pipelines 0-6, chunk (rank + 7 - i) % 8: reduce 2 sources`."""
        plan, rows = self.caller.plan, self.rows(run, q)
        lines = np.unique(plan.line[rows])
        lines = lines[lines > 0]
        where = ",".join(str(x) for x in lines[:LINES_NAMED])
        more = ",..." if len(lines) > LINES_NAMED else ""
        low, high = int(plan.sub[rows].min()), int(plan.sub[rows].max())
        sub = f"sub-pipelines {low}-{high}" if high > low else f"sub-pipeline {low}"
        form = self.form(plan.chunk[rows].astype(np.int64), run)
        chunk = f", chunk {text(form, self.tables.name)}" if not cost(form)[0] else ""
        place = f"{source}:{where}{more}, " if where else ""
        return f"// {place}{sub}{chunk}: {self.caller.verb(int(rows.flat[0]))}"


def steps(fitter: Fitter, source: str) -> list[Step]:
    """The runs of a class, cut where that saves tables, and fitted."""
    return [fitter.step(run, source) for run in pieces(fitter.alike.shapes, fitter.price)]


def body(found: list[Step], gpus: int) -> list[str]:
    """The lines between the braces of a class's function."""
    numbers: Counter[str] = Counter()
    local = _locals((n for s in found for c in s.calls for n in _named(c) if not n.looped), numbers)
    reads = {x for s in found for c in s.calls for n in _named(c) for x in n.reads}
    lines = coordinates(reads, gpus)
    lines += [f"  const int {name} = {value};" for value, name in local.items()]
    lines += ["  HCCC_WINDOWS(b) {"]
    for step in found:
        lines += _step_lines(step, local, numbers)
    return [*lines, "  }"]


def _named(call: Fitted) -> Iterator[Named]:
    for argument in call.arguments:
        if isinstance(argument, Fitted):
            yield from _named(argument)
        elif isinstance(argument, Named):
            yield argument


def _locals(candidates: Iterator[Named], numbers: Counter[str]) -> dict[str, str]:
    """Expression → name of its local, for those used more than once and long enough."""
    uses: dict[str, list[str]] = {}
    for named in candidates:
        uses.setdefault(named.text, []).append(named.name)
    found: dict[str, str] = {}
    for value, called in uses.items():
        if len(value) > SHORT and len(called) > 1:
            name = "peer" if "peer" in called else called[0]
            found[value] = f"{name}{numbers[name]}"
            numbers[name] += 1
    return found


def coordinates(reads: set[str], gpus: int) -> list[str]:
    """The locals that say where this thread block is."""
    lines = []
    if reads & {"rank", "node", "local"}:
        lines.append("  const int rank = b.rank;")
    if "node" in reads:
        lines.append(f"  const int node = rank / {gpus};")
    if "local" in reads:
        lines.append(f"  const int local = rank % {gpus};")
    return [*lines, "  const int tb = b.tb;"] if "tb" in reads else lines


def _step_lines(step: Step, outer: dict[str, str], numbers: Counter[str]) -> list[str]:
    if step.run.count == 1:
        lines = []
        for call, comment in zip(step.calls, step.comments, strict=True):
            lines += [f"    {comment}", *wrap.wrap(_text(call, outer), 4, ";")]
        return lines
    looped = (n for c in step.calls for n in _named(c) if n.looped)
    inner = _locals(looped, Counter(numbers))
    lines = [f"    for (int i = 0; i < {step.run.count}; ++i) {{"]
    lines += [f"      const int {name} = {value};" for value, name in inner.items()]
    for call, comment in zip(step.calls, step.comments, strict=True):
        lines += [f"      {comment}", *wrap.wrap(_text(call, outer | inner), 6, ";")]
    return [*lines, "    }"]


def _text(call: Fitted, local: dict[str, str]) -> wrap.Text:
    arguments = []
    for argument in call.arguments:
        if isinstance(argument, Fitted):
            arguments.append(_text(argument, local))
        elif isinstance(argument, Named):
            arguments.append(wrap.Text(local.get(argument.text, argument.text)))
        else:
            arguments.append(wrap.Text(argument))
    return wrap.Text(call.function, tuple(arguments))
