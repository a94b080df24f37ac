"""function: a Class of thread blocks → one C++ function of straight-line calls and loops.

A number that occurs more than once becomes a local variable: at the top of the function, or of the
loop that it depends on. Other numbers stand where they are used. `view` has an example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from hccc.emit.kernels import wrap
from hccc.emit.kernels.calls import Argument, Caller, KernelCall, KernelParameter, parameters_of
from hccc.emit.kernels.classes import Class
from hccc.emit.kernels.fit import fit
from hccc.emit.kernels.forms import Axis, Form, Grid, Lookup, cost, names
from hccc.emit.kernels.loops import Repeat
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
    """A parameter's C expression; `name`: of a local variable for it."""

    name: str
    text: str
    looped: bool
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class FittedRepeat:
    """One repeat of a function, fitted: a call per shape of its period."""

    repeat: Repeat
    calls: tuple[Fitted, ...]
    comments: tuple[str, ...]


@dataclass(slots=True)
class LookupTables:
    """The lookup tables of a file; equal ones are one. Grows while functions are made."""

    by_key: dict[tuple[object, ...], tuple[str, Lookup]] = field(default_factory=dict)

    def name(self, lookup: Lookup) -> str:
        """Returns the name of a table; adds the table if it is new."""
        key = lookup.key()
        if key not in self.by_key:
            self.by_key[key] = (f"hccc_table{len(self.by_key)}", lookup)
        return self.by_key[key][0]


@dataclass(frozen=True, slots=True, eq=False)
class Fitter:
    """Fits the parameters of one class; remembers equal arrays."""

    caller: Caller
    alike: Class
    moduli: tuple[int, ...]
    tables: LookupTables
    known: dict[tuple[object, ...], Form]

    def grid(self, repeat: Repeat) -> Grid:
        """Returns the class's axes and the loop's."""
        axis = Axis("i", np.arange(repeat.count))
        return Grid((*self.alike.grid.axes, axis), self.alike.grid.gpus)

    def rows(self, repeat: Repeat, q: int) -> I8:
        """Returns the primitives at position `q` of the loop's body: i8[grid(repeat).shape]."""
        return (
            self.alike.start[..., None] + repeat.start + q + repeat.period * np.arange(repeat.count)
        )

    def call(self, repeat: Repeat, q: int) -> KernelCall:
        """Returns the call at position `q` of the loop's body."""
        prim = repeat.start + q + repeat.period * np.arange(repeat.count)
        rows = self.rows(repeat, q)
        return self.caller.primitive(rows, np.broadcast_to(prim, rows.shape))

    def form(self, values: I8, repeat: Repeat) -> Form:
        """Returns the form of one parameter over a repeat."""
        grid = self.grid(repeat)
        key = (grid.shape, values.tobytes())
        if key not in self.known:
            self.known[key] = fit(values, grid, self.moduli)
        return self.known[key]

    def parameters(self, repeat: Repeat) -> Iterator[KernelParameter]:
        """Yields all parameters of a repeat."""
        for q in range(repeat.period):
            yield from parameters_of(self.call(repeat, q))

    def price(self, repeat: Repeat) -> tuple[int, int]:
        """Returns the table entries the repeat needs: all, and those that depend on the loop."""
        forms = {id(f): f for f in (self.form(n.values, repeat) for n in self.parameters(repeat))}
        priced = [(cost(f)[0], "i" in names(f)) for f in forms.values()]
        return sum(c for c, _ in priced), sum(c for c, looped in priced if looped)

    def fitted(self, repeat: Repeat, source: str) -> FittedRepeat:
        """Fits the parameters of a repeat."""
        calls = tuple(self._fitted(self.call(repeat, q), repeat) for q in range(repeat.period))
        comments = tuple(self._comment(repeat, q, source) for q in range(repeat.period))
        return FittedRepeat(repeat, calls, comments)

    def _fitted(self, call: KernelCall, repeat: Repeat) -> Fitted:
        return Fitted(call.function, tuple(self._argument(a, repeat) for a in call.arguments))

    def _argument(self, argument: Argument, repeat: Repeat) -> Fitted | Named | str:
        if isinstance(argument, KernelCall):
            return self._fitted(argument, repeat)
        if isinstance(argument, str):
            return argument
        form = self.form(argument.values, repeat)
        reads = frozenset(names(form))
        value = code(form, self.grid(repeat), self.tables.name)
        return Named(argument.name, value, "i" in reads, reads)

    def _comment(self, repeat: Repeat, q: int, source: str) -> str:
        """Writes the comment of a call: `ring.rccl:14, sub-pipelines 0-6, chunk (rank + 7 - i) % 8:
        reduce 2 sources`."""
        plan, rows = self.caller.plan, self.rows(repeat, q)
        lines = np.unique(plan.line[rows])
        lines = lines[lines > 0]
        where = ",".join(str(x) for x in lines[:LINES_NAMED])
        more = ",..." if len(lines) > LINES_NAMED else ""
        low, high = int(plan.sub[rows].min()), int(plan.sub[rows].max())
        sub = f"sub-pipelines {low}-{high}" if high > low else f"sub-pipeline {low}"
        form = self.form(plan.chunk[rows].astype(np.int64), repeat)
        chunk = f", chunk {text(form, self.tables.name)}" if not cost(form)[0] else ""
        place = f"{source}:{where}{more}, " if where else ""
        return f"// {place}{sub}{chunk}: {self.caller.verb(int(rows.flat[0]))}"


def fitted_repeats(fitter: Fitter, source: str) -> list[FittedRepeat]:
    """Returns the repeats of a class, cut where that saves tables, and fitted."""
    return [fitter.fitted(repeat, source) for repeat in pieces(fitter.alike.shapes, fitter.price)]


def body(repeats: list[FittedRepeat], gpus: int) -> list[str]:
    """Returns the lines between the braces of a class's function."""
    counts: Counter[str] = Counter()
    local = _locals(
        (n for r in repeats for c in r.calls for n in _named(c) if not n.looped), counts
    )
    reads = {x for r in repeats for c in r.calls for n in _named(c) for x in n.reads}
    lines = coordinates(reads, gpus)
    lines += [f"  const int {name} = {value};" for value, name in local.items()]
    lines += ["  HCCC_WINDOWS(b) {"]
    for fitted in repeats:
        lines += _lines_of(fitted, local, counts)
    return [*lines, "  }"]


def _named(call: Fitted) -> Iterator[Named]:
    for argument in call.arguments:
        if isinstance(argument, Fitted):
            yield from _named(argument)
        elif isinstance(argument, Named):
            yield argument


def _locals(candidates: Iterator[Named], counts: Counter[str]) -> dict[str, str]:
    """Returns the name of a local for each expression that is used more than once and long
    enough."""
    uses: dict[str, list[str]] = {}
    for named in candidates:
        uses.setdefault(named.text, []).append(named.name)
    local: dict[str, str] = {}
    for value, called in uses.items():
        if len(value) > SHORT and len(called) > 1:
            name = "peer" if "peer" in called else called[0]
            local[value] = f"{name}{counts[name]}"
            counts[name] += 1
    return local


def coordinates(reads: set[str], gpus: int) -> list[str]:
    """Returns the locals that hold the coordinates of this thread block."""
    lines = []
    if reads & {"rank", "node", "local"}:
        lines.append("  const int rank = b.rank;")
    if "node" in reads:
        lines.append(f"  const int node = rank / {gpus};")
    if "local" in reads:
        lines.append(f"  const int local = rank % {gpus};")
    return [*lines, "  const int tb = b.tb;"] if "tb" in reads else lines


def _lines_of(fitted: FittedRepeat, outer: dict[str, str], counts: Counter[str]) -> list[str]:
    if fitted.repeat.count == 1:
        lines = []
        for call, comment in zip(fitted.calls, fitted.comments, strict=True):
            lines += [f"    {comment}", *wrap.wrap(_text(call, outer), 4, ";")]
        return lines
    looped = (n for c in fitted.calls for n in _named(c) if n.looped)
    inner = _locals(looped, Counter(counts))
    lines = [f"    for (int i = 0; i < {fitted.repeat.count}; ++i) {{"]
    lines += [f"      const int {name} = {value};" for value, name in inner.items()]
    for call, comment in zip(fitted.calls, fitted.comments, strict=True):
        lines += [f"      {comment}", *wrap.wrap(_text(call, outer | inner), 6, ";")]
    return [*lines, "    }"]


def _text(call: Fitted, local: dict[str, str]) -> wrap.CallText:
    arguments = []
    for argument in call.arguments:
        if isinstance(argument, Fitted):
            arguments.append(_text(argument, local))
        elif isinstance(argument, Named):
            arguments.append(wrap.CallText(local.get(argument.text, argument.text)))
        else:
            arguments.append(wrap.CallText(argument))
    return wrap.CallText(call.function, tuple(arguments))
