"""The library that communicators.py runs: an AllReduce of two ranks, built by nvcc or hipcc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import TRANSPORTS, programs
from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.emit import directory
from hccc.emit.targets import CUDA, HIP
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.communicator.kernels import built as library_of


def of_two_ranks() -> Plan:
    """Compiles a ring AllReduce of two ranks."""
    text = programs()["ring_allreduce"]
    for key in ("nRanks", "GPUPerNode", "NICPerNode"):
        text = text.replace(f"{key}=8", f"{key}=2")
    return compile_text(Source("two_ranks.rccl", text), TRANSPORTS["direct"]).plan


def platform_of(machine: Any) -> str:
    """Returns `cuda` or `hip`."""
    return "hip" if machine.device.hip else "cuda"


def built(machine: Any, place: Path) -> Path:
    """Builds the library of two ranks, for the machine's GPU.

    Raises:
        UserError: E41x it does not build.
    """
    plan, target = of_two_ranks(), HIP if machine.device.hip else CUDA
    directory.write(place, directory.files(Catalogue.of(plan), [target], plan_json.dumps(plan)))
    os.environ["HCCC_GPU_ARCH"] = machine.device.arch
    return library_of(place, ["int32"], ["sum"], platform_of(machine))
