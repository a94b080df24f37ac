"""kernels: does the compiled CPU kernel of a Plan give the collective's result?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.plan import Plan
from hccc.runtime import perf
from hccc.runtime.cpu import CpuCommunicator
from hccc.runtime.layout import shape_of
from hccc.runtime.request import Request
from hccc.runtime.session import HostSession


def wrong_elements(plan: Plan, request: Request) -> int:
    """Builds `plan` and launches it as `request` says, in and out of place as far as it serves.

    Every element of every rank is compared, send buffers and the memory around buffers too.
    `request.in_place` is ignored. Needs a C++ compiler; about a second.

    Raises:
        UserError: it does not build, or a wait ran out of time.
    """
    c = plan.collective
    item = request.itemsize
    blocks = max(max(c.input_blocks(r), c.output_blocks(r)) for r in range(c.n_ranks))
    size = request.count * blocks * item
    schedule = perf.Schedule(size, size, None, 1, 1, 0, True, plan.modes, plan.keeps_input)
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        cpu = [target for target in TARGETS if target.name == "cpu"]
        made = directory.files(plan, cpu, plan_json.dumps(plan))
        directory.write(Path(place) / "kernels", made)
        source = Path(place) / "kernels" / f"{plan.name}{cpu[0].suffix}"
        host = CpuCommunicator(source, plan.name, shape_of(plan), c)
        host.build([request])

        def bind(memory: Sequence[perf.Memory], count: int, in_place: bool) -> HostSession:
            return HostSession(host, replace(request, count=count, in_place=in_place), memory)

        return perf.measure(c, request.dtype, request.op, size, schedule, bind).wrong
