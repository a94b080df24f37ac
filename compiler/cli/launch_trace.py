"""launch_trace: writes the launches that a run recorded into a file for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from hccc.base.diagnostics import Problem
from hccc.base.files.writing import write_whole
from hccc.ir.topology import Topology
from hccc.launch.tracing import Traced
from hccc.pictures import launch_trace
from hccc.pictures.launch_trace import RecordedLaunch
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, simulate


def write(file: Path, launches: Sequence[Traced], cluster: Topology | None) -> Iterator[Problem]:
    """Writes the trace of launches beside the prediction for a cluster; warns (W404) of lost
    records."""
    made = [_launch(one, cluster) for one in launches]
    write_whole(file, partial(launch_trace.write, made))
    lost = sum(one.lost for one in made)
    if lost:
        message = f"{file}: {lost:,} of {lost + sum(map(len, made)):,} records were lost"
        help = "record fewer bytes (-b, -e), or with a larger --micro-batch"
        yield Problem("W404", message, help=help, severity="warning")


def _launch(one: Traced, cluster: Topology | None) -> RecordedLaunch:
    request, sizes, found = one.request, one.sizes, one.recording
    collective = one.plan.collective
    size = request.count * request.itemsize * collective.most_blocks()
    call = Request(size, sizes.micro * request.itemsize, one.window, request.in_place)
    predicted = simulate(prepare(one.plan, cluster), call) if cluster and size else None
    about = {
        "type": request.dtype,
        "redop": request.op if one.plan.reduces else "none",
        "bytes": size,
        "in place": request.in_place,
        "micro_batches": sizes.batches,
        "window": one.window,
    }
    columns = {
        name: found.records[name].astype(np.int64)
        for name in ("primitive", "micro_batch", "begin", "ready", "end")
    }
    return RecordedLaunch(
        one.plan,
        about,
        request.in_place,
        request.itemsize,
        request.count,
        sizes.part,
        sizes.micro,
        sizes.batches,
        one.window,
        found.rank,
        found.block,
        lost=found.lost,
        predicted=predicted,
        **columns,
    )
