"""plan_json: a Plan as versioned JSON, and back.

The layout is the Plan's own: one list of integers per column, one column per line, so that half a
million primitives are a dozen long lines that any JSON reader takes in at once, and a diff shows
the changed column. `plan.schema.json` beside this file describes every field.

A plan file is untrusted: `loads` checks it against the schema, then by `plan_check`, and only then
returns a Plan. `loads(dumps(plan))` is the same Plan, and `dumps` depends on nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hccc.base.diagnostics import Source, Span, UserError, fail
from hccc.base.files.reading import read_text
from hccc.base.limits import PLAN_BYTES
from hccc.ir.arrays import I8, Csr
from hccc.ir.choices import Accumulate, Bits, PlanProtocol
from hccc.ir.collective import Collective, OpType, spelled
from hccc.ir.demand import Demand, DemandFault
from hccc.ir.demand import parse as parse_demand
from hccc.ir.micro_batch import GRAIN
from hccc.ir.names import source_name
from hccc.ir.plan import PLAN_VERSION, Plan, Posts
from hccc.ir.plan_check import check
from hccc.ir.primitives import Operands, Queues, Transport
from hccc.ir.provenance import Cluster, Provenance
from hccc.ir.schema import check_data, compiled, schema_of

MAX_BYTES = PLAN_BYTES
_VERSION_KEY = "hccc_plan"
_READ = (1, PLAN_VERSION)
# The columns that Plan holds itself, and those of the tables in it.
_COLUMNS = (
    "memory_domain",
    "n_tb",
    "n_flags",
    "scratch_slots",
    "stage_slots",
    "tb_ptr",
    "chunk",
    "sub",
    "line",
    "final",
    "guard",
)
_TABLES: dict[str, tuple[type[Operands] | type[Csr] | type[Posts] | type[Queues], list[str]]] = {
    "src": (Operands, ["ptr", "rank", "buffer", "slot"]),
    "dst": (Operands, ["ptr", "rank", "buffer", "slot"]),
    "waits": (Csr, ["ptr", "index"]),
    "posts": (Posts, ["ptr", "rank", "flag"]),
    "queues": (Queues, ["src", "dst", "length", "data_flag", "credit_flag"]),
}


def dumps(plan: Plan) -> str:
    """Writes `plan` as JSON, one column per line, with a newline at the end."""
    return "{\n" + ",\n".join(_fields(plan)) + "\n}\n"


def _fields(plan: Plan) -> Iterator[str]:
    c = plan.collective
    header: dict[str, object] = {
        _VERSION_KEY: PLAN_VERSION,
        "name": plan.name,
        "source": plan.source,
        "collective": {
            "op": c.name,
            "n_ranks": c.n_ranks,
            "n_chunks": c.n_chunks,
            "root": c.root,
            **({"demand": c.demand.text()} if c.demand else {}),
        },
        "channels": plan.channels,
        "warps": plan.warps,
        "gpus_per_node": plan.gpus_per_node,
        "nics_per_node": plan.nics_per_node,
        "transport": plan.transport.name.lower(),
        "queue_slots": plan.queue_slots,
        "max_window": plan.max_window,
        "in_place": plan.in_place,
        "out_of_place": plan.out_of_place,
        "keeps_input": plan.keeps_input,
        "window": plan.window,
        "grain": plan.grain,
        "accumulate": plan.accumulate.stated,
    }
    if plan.protocol is not PlanProtocol.SIMPLE:
        header |= {"protocol": plan.protocol.value, "max_bytes": plan.max_bytes}
    if plan.greets:
        header["greets"] = True
    if plan.multicast is not None:
        header["multicast"] = plan.multicast.value
    if plan.reductions:
        header["reductions"] = list(plan.reductions)
    if plan.provenance is not None:
        header["provenance"] = provenance_fields(plan.provenance)
    for key, value in header.items():
        yield f"{json.dumps(key)}: {json.dumps(value)}"
    for column in _COLUMNS:
        yield _line(column, getattr(plan, column))
    for table, (_, columns) in _TABLES.items():
        rows = getattr(plan, table)
        inner = ",\n".join(f"  {_line(column, getattr(rows, column))}" for column in columns)
        yield f'"{table}": {{\n{inner}\n}}'


def provenance_fields(provenance: Provenance) -> dict[str, object]:
    """Returns a Provenance in the form that files have it."""
    cluster = provenance.cluster
    return {
        "hccc": provenance.version,
        "options": dict(provenance.options),
        "scheduler": provenance.scheduler,
        "cluster": None if cluster is None else {"name": cluster.name, "text": cluster.text},
    }


def provenance_of(data: Any) -> Provenance:
    """Reads a Provenance from data that fits the schema. Every text but the cluster's becomes one
    printable line, since reports print it."""
    cluster = data["cluster"]
    options = {
        source_name(name): source_name(value) if isinstance(value, str) else value
        for name, value in data["options"].items()
    }
    return Provenance(
        source_name(data["hccc"]),
        options,
        source_name(data["scheduler"]),
        cluster and Cluster(source_name(cluster["name"]), cluster["text"]),
    )


def _line(key: str, column: I8) -> str:
    return f'"{key}": [{_decimal(column)}]'


def _decimal(column: I8) -> str:
    """Joins the numbers by commas, six times as fast as `str` of each."""
    if not column.size or column.min() < 0:
        return ",".join(map(str, column.tolist()))
    most = int(column.max())
    rest: I8 = column.astype(np.uint64 if most >> 32 else np.uint32)
    width = len(str(most))
    text = np.full((column.size, width + 1), ord(","), np.uint8)
    shown = np.ones(text.shape, np.bool_)
    for k in range(width - 1, -1, -1):
        shown[:, k] = (rest > 0) | (k == width - 1)
        text[:, k] = rest % 10 + ord("0")
        rest = rest // 10
    return text[shown].tobytes()[:-1].decode()


def load(path: Path | str) -> Plan:
    """Loads the Plan in a file. Raises as `loads`, and UserError E401, E402, E404 as
    `read_text`."""
    return loads(read_text(Path(path), MAX_BYTES), str(path))


def loads(text: str, name: str = "plan") -> Plan:
    """Loads the Plan in `text`; `name` is how messages call it.

    Raises:
        UserError: E406 not JSON; E407 not as the schema requires; E31x not a sound Plan
        (`plan_check.check`). The message names the field.
    """
    return loaded(parsed(text, name), name)


def loaded(data: object, name: str) -> Plan:
    """Makes a Plan of data from `parsed`, or of a part of it. Raises as `loads`, but no E406."""
    _validate(data, name)
    with named_problems(name):
        plan = _plan(data)
        check(plan)
    return plan


@contextmanager
def named_problems(name: str) -> Iterator[None]:
    """Puts the name of the file before the messages of problems."""
    try:
        yield
    except UserError as error:
        problem = error.problem
        raise fail(problem.code, f"{name}: {problem.message}", help=problem.help) from None


def _accumulate(said: str) -> Accumulate:
    """Returns the type of sums that a plan states. Raises E310 for one that kernels do not have."""
    for one in Accumulate:
        if said == one.stated:
            return one
    kept = "; ".join(one.stated for one in Accumulate)
    message = f"accumulate: {said[:80]!r}, but this hccc keeps sums in {kept}"
    raise fail("E310", message, help="compile it again from its source")


def _multicast(said: str) -> Bits | None:
    return None if said == "none" else Bits(said)


def parsed(text: str, name: str) -> object:
    """Parses the JSON in `text`, without duplicate keys or numbers that JSON does not have.

    Raises:
        UserError: E404 it is too long, E406 it is not JSON.
    """
    if len(text) > MAX_BYTES:
        raise fail("E404", f"{name}: more than the {MAX_BYTES} characters a plan may have")
    try:
        data: object = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates
        )
    except json.JSONDecodeError as error:
        span = Span(Source(name, text), error.lineno, error.colno, error.colno + 1)
        raise fail("E406", f"not JSON: {error.msg}", span) from None
    except RecursionError:
        raise fail("E406", f"{name}: not a plan: nested too deep") from None
    except ValueError as error:
        raise fail("E406", f"{name}: not a plan: {error}") from None
    return data


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice[:40]!r} occurs twice in one object")
    return members


@cache
def _validator() -> Callable[[object], object]:
    """Compiles the schema to a function, without the entries of columns.

    NumPy checks those 50 times faster: `_column` reads their limits from the same schema.
    """
    shallow = json.loads(json.dumps(schema_of("plan")))
    for kind in shallow["definitions"].values():
        kind.pop("items", None)
    return compiled(shallow)


def _validate(data: object, name: str) -> None:
    help = "`hccc ALGO --emit=plan` prints one; hccc/ir/plan.schema.json describes it"
    if not isinstance(data, dict) or not data.keys() & {_VERSION_KEY, "name", "collective"}:
        raise fail("E407", f"{name}: not a plan of hccc's", help=help)
    for field, value in _not_integers(data, schema_of("plan")):
        what = f"{field}: {json.dumps(value)[:40]} is not an integer"
        raise fail("E407", f"{name}: {what}", help=help)
    if data.get(_VERSION_KEY, PLAN_VERSION) not in _READ:
        version = str(data[_VERSION_KEY])[:40]
        message = f"{name}: a plan of version {version}; this hccc reads version {PLAN_VERSION}"
        raise fail("E407", message, help="compile it again from its source")
    if ("memory_domain" in data) == (data.get(_VERSION_KEY) == 1):
        there = "memory_domain: not of version 1" if "memory_domain" in data else "no memory_domain"
        raise fail("E407", f"{name}: {there}", help=help)
    if data.get(_VERSION_KEY) == 1 and data.get("transport") == "mixed":
        raise fail("E407", f"{name}: transport: 'mixed' is not of version 1", help=help)
    check_data(_validator(), data, name, "plan", help)


def _not_integers(data: object, kind: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (field, value) where the schema wants an integer and JSON has `2.0`, `1e0` or `true`.

    JSON Schema counts 2.0 as an integer, and Python counts `True` as 1. `_column` checks the
    columns.
    """
    if not isinstance(data, dict):
        return
    for key, inner in kind.get("properties", {}).items():
        if key not in data:
            continue
        if "$ref" in inner:
            inner = schema_of("plan")["definitions"][inner["$ref"].rsplit("/", 1)[-1]]
        wants = inner.get("type") == "integer" or type(inner.get("enum", [None])[0]) is int
        if wants and isinstance(data[key], bool | float):
            yield f"{path}{key}", data[key]
        yield from _not_integers(data[key], inner, f"{path}{key}.")


def _column(field: str, values: list[Any], properties: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Returns a column as i8, each entry an integer within the limits of the schema."""
    key = field.rsplit(".", 1)[-1]
    kind = properties[key]["$ref"].rsplit("/", 1)[-1]
    limits = schema_of("plan")["definitions"][kind]["items"]
    if not set(map(type, values)) <= {int}:
        i = next(i for i, value in enumerate(values) if type(value) is not int)
        raise fail("E407", f"{field}[{i}]: {json.dumps(values[i])[:40]} is not an integer")
    low, high = int(limits["minimum"]), int(limits["maximum"])
    if values and (min(values) < low or max(values) > high):
        i = next(i for i, value in enumerate(values) if not low <= value <= high)
        raise fail("E407", f"{field}[{i}]: {str(values[i])[:40]} is not in {low}..{high}")
    return np.array(values, np.int64)


def _first_domains(data: Any) -> list[int]:
    """Returns the memory domains of a plan of version 1, which lacks them: one if it is direct,
    else one per node."""
    staged = data["transport"] == "staged"
    return [r // data["gpus_per_node"] * staged for r in range(data["collective"]["n_ranks"])]


def _plan(data: Any) -> Plan:
    """Makes the Plan of validated data; its columns are checked here."""
    properties = schema_of("plan")["properties"]
    if data[_VERSION_KEY] == 1:
        data = {**data, "memory_domain": _first_domains(data)}
    parts: dict[str, Any] = {key: _column(key, data[key], properties) for key in _COLUMNS}
    for table, (make, names) in _TABLES.items():
        inner = properties[table]
        inner = schema_of("plan")["definitions"][inner["$ref"].rsplit("/", 1)[-1]]["properties"]
        parts[table] = make(*(_column(f"{table}.{k}", data[table][k], inner) for k in names))
    c = data["collective"]
    return Plan(
        name=data["name"],
        source=data["source"],
        collective=_collective(c),
        channels=data["channels"],
        warps=data["warps"],
        gpus_per_node=data["gpus_per_node"],
        nics_per_node=data["nics_per_node"],
        transport=Transport[data["transport"].upper()],
        queue_slots=data["queue_slots"],
        max_window=data["max_window"],
        in_place=data["in_place"],
        out_of_place=data["out_of_place"],
        keeps_input=data["keeps_input"],
        window=data.get("window", 0),
        grain=data.get("grain", GRAIN),
        accumulate=_accumulate(data["accumulate"]),
        reductions=tuple(data.get("reductions", ())),
        protocol=PlanProtocol(data.get("protocol", PlanProtocol.SIMPLE)),
        max_bytes=data.get("max_bytes", 0),
        greets=data.get("greets", False),
        multicast=_multicast(data.get("multicast", "none")),
        provenance=provenance_of(data["provenance"]) if "provenance" in data else None,
        **parts,
    )


def _collective(c: dict[str, Any]) -> Collective:
    op, uneven = spelled(c["op"]) or (OpType(c["op"]), False)
    demand = _demand(c["demand"], c["n_ranks"]) if "demand" in c else None
    return Collective(op, c["n_ranks"], c["n_chunks"], c["root"], uneven, demand)


def _demand(text: str, n_ranks: int) -> Demand:
    try:
        return parse_demand(text, n_ranks)
    except DemandFault as fault:
        raise fail("E310", f"collective.demand: {fault.message}", help=fault.help) from None
