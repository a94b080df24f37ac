"""kernels: runs the compiled CPU kernel of a Plan. Needs a C++ compiler; takes about a second.

Between the memory domains of a mixed plan, proxies copy as late as they may, so that data
overwritten before, or taken as arrived, goes wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.ir.uneven import modes_of, table_of
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import shape_of
from hccc.runtime.measure import perf
from hccc.runtime.measure.patterns import Pattern, scalars
from hccc.runtime.measure.session import HostSession
from hccc.runtime.network import RankNetwork, Wire, network_of
from hccc.runtime.request import LaunchRequest


def wrong_elements(plan: Plan, request: LaunchRequest, skew: str = "") -> int:
    """Launches `plan` for `request`, in and out of place if it serves both; returns the number of
    wrong elements.

    Every element of every rank is compared with the collective's definition, send buffers and the
    memory around buffers too. `request.in_place` is ignored, a reduction that the plan lacks is a
    sum. skew: of the lengths of an uneven collective's blocks (`ir/uneven.SKEWS`); Alltoallv is
    then launched out of place.

    Raises:
        UserError: it does not build, or a wait ran out of time.
    """
    c = plan.collective
    if request.op not in plan.operations:
        request = replace(request, op="sum")
    if request.op == "premul_sum":
        request = replace(request, scalars=scalars(request.dtype, c.n_ranks))
    blocks = max(max(c.input_blocks(r), c.output_blocks(r)) for r in range(c.n_ranks))
    size = request.count * blocks * request.itemsize
    skew = skew if c.uneven else ""
    modes = modes_of(c, plan.modes, skew)
    schedule = perf.SizeSchedule(size, size, None, 1, 1, 0, True, modes, plan.keeps_input, skew)
    with built(plan, request) as host:

        def bind(memory: Sequence[perf.RankMemory], count: int, in_place: bool) -> HostSession:
            blocks = table_of(c, count, skew)
            call = replace(request, count=count, in_place=in_place, blocks=blocks)
            return HostSession(host, call, memory)

        return perf.measure(c, request.dtype, request.op, size, schedule, bind).wrong


def launch(
    plan: Plan, inputs: Sequence[NDArray[Any]], request: LaunchRequest
) -> list[NDArray[Any]]:
    """Returns the receive buffers after one launch on `inputs` (one send buffer a rank, flat)."""
    pattern = Pattern(plan.collective, request.dtype, request.op, request.count)
    ranks = range(plan.n_ranks)
    memory = [perf.allocate(pattern, rank, request.in_place) for rank in ranks]
    for rank in ranks:
        memory[rank].slab[...] = 0
        memory[rank].send[...] = inputs[rank]
    with built(plan, request) as host:
        HostSession(host, request, memory).run(1)
    return [m.receive.copy() for m in memory]


@contextmanager
def built(plan: Plan, request: LaunchRequest) -> Iterator[CpuLauncher]:
    """Builds the plan's kernel for the request's type and operation, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        cpu = [target for target in TARGETS if target.name == "cpu"]
        made = directory.files(Catalogue.of(plan), cpu, plan_json.dumps(plan))
        directory.write(Path(place) / "kernels", made)
        source = Path(place) / "kernels" / f"{plan.name}{cpu[0].suffix}"
        shape, network = shape_of(plan), _network(plan)
        host = CpuLauncher(source, plan.name, shape, plan.collective, network=network)
        host.build([request])
        yield host


def _network(plan: Plan) -> RankNetwork | None:
    """Returns the network between the memory domains of a mixed plan: a NIC for each rank, without
    limits."""
    if plan.transport is not Transport.MIXED:
        return None
    return network_of(plan.memory_domain, range(plan.n_ranks), Wire(copy_on_arrival=True))
