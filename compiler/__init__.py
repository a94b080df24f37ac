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

from hccc.base.version import __version__

if TYPE_CHECKING:
    from hccc.api.functions import (
        bound,
        check,
        common_cluster,
        compile,
        draw,
        explain,
        load_cluster,
        show,
        simulate,
        synthesize,
        synthesize_sizes,
        write,
    )
    from hccc.base.diagnostics import Problem, Source, UserError
    from hccc.driver.compiled import CheckedDirectory, Compiled, CompiledProgram
    from hccc.driver.options import Options
    from hccc.driver.outputs import Written
    from hccc.ir.plan import Plan
    from hccc.ir.program import Program
    from hccc.ir.topology import Topology
    from hccc.ir.transport import Transport
    from hccc.pictures.canvas import Picture
    from hccc.predict.bounds import Bounds
    from hccc.predict.explanation import Explanation
    from hccc.predict.simulation import Call, Simulation, Sizes
    from hccc.proofs.proof import Proof
    from hccc.synth.synthesis import SizesSynthesis, Synthesis

_HOME = {
    **dict.fromkeys(
        (
            "bound",
            "check",
            "common_cluster",
            "compile",
            "draw",
            "explain",
            "load_cluster",
            "show",
            "simulate",
            "synthesize",
            "synthesize_sizes",
            "write",
        ),
        "hccc.api.functions",
    ),
    **dict.fromkeys(("Problem", "Source", "UserError"), "hccc.base.diagnostics"),
    **dict.fromkeys(("CheckedDirectory", "Compiled", "CompiledProgram"), "hccc.driver.compiled"),
    "Plan": "hccc.ir.plan",
    "Program": "hccc.ir.program",
    "Topology": "hccc.ir.topology",
    "Transport": "hccc.ir.transport",
    "Options": "hccc.driver.options",
    "Written": "hccc.driver.outputs",
    "Picture": "hccc.pictures.canvas",
    "Bounds": "hccc.predict.bounds",
    "Explanation": "hccc.predict.explanation",
    "Proof": "hccc.proofs.proof",
    "Simulation": "hccc.predict.simulation",
    "Call": "hccc.predict.simulation",
    "Sizes": "hccc.predict.simulation",
    "Synthesis": "hccc.synth.synthesis",
    "SizesSynthesis": "hccc.synth.synthesis",
}
__all__ = [
    "Bounds",
    "Call",
    "CheckedDirectory",
    "Compiled",
    "CompiledProgram",
    "Explanation",
    "Options",
    "Picture",
    "Plan",
    "Problem",
    "Program",
    "Proof",
    "Simulation",
    "Sizes",
    "SizesSynthesis",
    "Source",
    "Synthesis",
    "Topology",
    "Transport",
    "UserError",
    "Written",
    "__version__",
    "bound",
    "check",
    "common_cluster",
    "compile",
    "draw",
    "explain",
    "load_cluster",
    "show",
    "simulate",
    "synthesize",
    "synthesize_sizes",
    "write",
]


def _load(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hccc' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # or any name would pass a type checker
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted(__all__)
