"""hccc: the heterogeneous collective communication compiler.

    import hccc

    compiled = hccc.compile("ring.rccl", cluster="site.cluster")
    hccc.write(compiled, "kernels")

`hccc.api` says what each function takes and raises. What is named here is loaded when it is first
used, so that importing hccc, and the command line's help, take no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hccc.base.version import __version__ as __version__

if TYPE_CHECKING:  # type checkers read names from here, `as` themselves: they are public
    from hccc.api.functions import assemble as assemble
    from hccc.api.functions import balance as balance
    from hccc.api.functions import bound as bound
    from hccc.api.functions import check as check
    from hccc.api.functions import common_cluster as common_cluster
    from hccc.api.functions import compile as compile
    from hccc.api.functions import diff as diff
    from hccc.api.functions import draw as draw
    from hccc.api.functions import explain as explain
    from hccc.api.functions import host_cluster as host_cluster
    from hccc.api.functions import load_cluster as load_cluster
    from hccc.api.functions import load_demand as load_demand
    from hccc.api.functions import load_job as load_job
    from hccc.api.functions import run as run
    from hccc.api.functions import show as show
    from hccc.api.functions import simulate as simulate
    from hccc.api.functions import synthesize as synthesize
    from hccc.api.functions import synthesize_sizes as synthesize_sizes
    from hccc.api.functions import write as write
    from hccc.base.diagnostics import Problem as Problem
    from hccc.base.diagnostics import Source as Source
    from hccc.base.diagnostics import UserError as UserError
    from hccc.driver.compiled import CheckedDirectory as CheckedDirectory
    from hccc.driver.compiled import Compiled as Compiled
    from hccc.driver.compiled import CompiledProgram as CompiledProgram
    from hccc.driver.options import Options as Options
    from hccc.driver.outputs import Written as Written
    from hccc.ir.demand import Demand as Demand
    from hccc.ir.job import Job as Job
    from hccc.ir.plan import Plan as Plan
    from hccc.ir.program import Program as Program
    from hccc.ir.topology import Topology as Topology
    from hccc.ir.transport import Transport as Transport
    from hccc.launch.measure import Measurement as Measurement
    from hccc.pictures.canvas import Picture as Picture
    from hccc.predict.bounds import Bounds as Bounds
    from hccc.predict.difference import Difference as Difference
    from hccc.predict.explanation import Explanation as Explanation
    from hccc.predict.job_explanation import JobExplanation as JobExplanation
    from hccc.predict.jobs import JobSimulation as JobSimulation
    from hccc.predict.simulation import Call as Call
    from hccc.predict.simulation import Simulation as Simulation
    from hccc.predict.simulation import Sizes as Sizes
    from hccc.proofs.proof import Proof as Proof
    from hccc.runtime.communicator import Communicator as Communicator
    from hccc.runtime.communicator import CommunicatorError as CommunicatorError
    from hccc.runtime.communicator import group as group
    from hccc.runtime.communicator import unique_id as unique_id
    from hccc.runtime.communicator.premul import premul_sum as premul_sum
    from hccc.synth.synthesis import SizesSynthesis as SizesSynthesis
    from hccc.synth.synthesis import Synthesis as Synthesis

_NAMES = {
    "hccc.api.functions": (
        "assemble",
        "balance",
        "bound",
        "check",
        "common_cluster",
        "compile",
        "diff",
        "draw",
        "explain",
        "host_cluster",
        "load_cluster",
        "load_demand",
        "load_job",
        "run",
        "show",
        "simulate",
        "synthesize",
        "synthesize_sizes",
        "write",
    ),
    "hccc.base.diagnostics": ("Problem", "Source", "UserError"),
    "hccc.driver.compiled": ("CheckedDirectory", "Compiled", "CompiledProgram"),
    "hccc.driver.options": ("Options",),
    "hccc.driver.outputs": ("Written",),
    "hccc.ir.demand": ("Demand",),
    "hccc.ir.job": ("Job",),
    "hccc.ir.plan": ("Plan",),
    "hccc.ir.program": ("Program",),
    "hccc.ir.topology": ("Topology",),
    "hccc.ir.transport": ("Transport",),
    "hccc.launch.measure": ("Measurement",),
    "hccc.pictures.canvas": ("Picture",),
    "hccc.predict.bounds": ("Bounds",),
    "hccc.predict.difference": ("Difference",),
    "hccc.predict.explanation": ("Explanation",),
    "hccc.predict.job_explanation": ("JobExplanation",),
    "hccc.predict.jobs": ("JobSimulation",),
    "hccc.predict.simulation": ("Call", "Simulation", "Sizes"),
    "hccc.proofs.proof": ("Proof",),
    "hccc.runtime.communicator": ("Communicator", "CommunicatorError", "group", "unique_id"),
    "hccc.runtime.communicator.premul": ("premul_sum",),
    "hccc.synth.synthesis": ("SizesSynthesis", "Synthesis"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def _load(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hccc' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *_HOME])


if not TYPE_CHECKING:  # or any name would pass a type checker
    __all__ = __dir__()
    __getattr__ = _load
