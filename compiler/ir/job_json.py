"""job_json: a Job as versioned JSON with its vendor clusters, and back.

`job.schema.json` beside this file describes every field. A file is untrusted: `loads` checks it
against the schema, then by the Job's `check`; that it computes its collective `verify_job` checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from hccc.base.diagnostics import fail
from hccc.ir.collective import Collective, spelled
from hccc.ir.job import JOB_STEP, Job, JobOp, check, vendor_clusters
from hccc.ir.plan_json import parsed
from hccc.ir.schema import check_data, compiled, schema_of

JOB_VERSION = 1
VERSION_KEY = "hccc_job"
_COLUMNS = JOB_STEP.names or ()
_HELP = "`hccc builtin hetccl -o job.json` writes one; hccc/ir/job.schema.json describes it"


def dumps(job: Job) -> str:
    """Writes `job` as JSON, a line for each vendor cluster and each column."""
    c, v = job.collective, job.clusters
    head = {
        VERSION_KEY: JOB_VERSION,
        "name": job.name,
        "collective": {"op": c.name, "n_parts": c.n_chunks, "root": c.root},
    }
    rows = ",\n".join(f"  {json.dumps(_cluster(job, k))}" for k in range(len(v)))
    columns = ",\n".join(f'  "{name}": {json.dumps(_column(job, name))}' for name in _COLUMNS)
    lines = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
    lines += [f'"clusters": [\n{rows}\n]', f'"steps": {{\n{columns}\n}}']
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _cluster(job: Job, k: int) -> dict[str, object]:
    v = job.clusters
    weight = v.weight[v.borders.ptr[k] : v.borders.ptr[k + 1]].tolist()
    ranks = {"ranks": v.members(k), "border": v.border(k), "weight": weight}
    return {"vendor": v.vendors[k], **ranks}


def _column(job: Job, name: str) -> list[int] | list[str]:
    values: list[int] = job.steps[name].tolist()
    return [JobOp(value).name.lower() for value in values] if name == "op" else values


def loads(text: str, name: str = "job") -> Job:
    """Loads the Job in `text`; `name` is how messages call it.

    Raises:
        UserError: E406 not JSON; E407 not as the schema requires; E208 not a sound Job.
    """
    data: Any = parsed(text, name)
    _validate(data, name)
    c, steps = data["collective"], data["steps"]
    keys = ("vendor", "ranks", "border", "weight")
    v = vendor_clusters([tuple(row[key] for key in keys) for row in data["clusters"]])
    if len({len(column) for column in steps.values()}) > 1:
        raise fail("E407", f"{name}: the columns of steps are not all as long", help=_HELP)
    table = np.zeros(len(steps["op"]), JOB_STEP)
    for column in _COLUMNS:
        values = steps[column]
        table[column] = [JobOp[x.upper()] for x in values] if column == "op" else values
    op, uneven = spelled(c["op"]) or (None, False)
    assert op is not None  # by the schema
    collective = Collective(op, v.n_ranks, c["n_parts"], c["root"], uneven)
    job = Job(data["name"], collective, v, table)
    if problems := check(job):
        raise fail("E208", f"{name}: {problems[0]}")
    return job


@cache
def _validator() -> Callable[[object], object]:
    """Compiles the schema to a function."""
    return compiled(schema_of("job"))


def _validate(data: object, name: str) -> None:
    for field, value in _not_integers(data):
        message = f"{name}: {field}: {json.dumps(value)[:40]} is not an integer"
        raise fail("E407", message, help=_HELP)
    check_data(_validator(), data, name, "job", _HELP)


def _not_integers(data: object, field: str = "") -> Iterator[tuple[str, object]]:
    """Yields what JSON has as `2.0` or `true`: JSON Schema and Python count both as integers."""
    if isinstance(data, bool | float):
        yield field, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _not_integers(value, f"{field}.{key}"[-80:].removeprefix("."))
    elif isinstance(data, list):
        for k, value in enumerate(data):
            if not isinstance(value, int) or isinstance(value, bool):
                yield from _not_integers(value, f"{field}[{k}]")
