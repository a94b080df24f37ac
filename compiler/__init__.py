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

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hccc.api import (
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
    from hccc.diagnostics import Problem, Source, UserError
    from hccc.driver import Compiled
    from hccc.ir.plan import Plan
    from hccc.ir.program import Program
    from hccc.ir.topology import Topology
    from hccc.ir.transport import Transport
    from hccc.options import Options
    from hccc.outputs import Written
    from hccc.pictures.canvas import Picture
    from hccc.predict.bounds import Bounds
    from hccc.predict.explanation import Explanation
    from hccc.predict.simulation import Call, Simulation, Sizes
    from hccc.proofs.proof import Proof
    from hccc.synthesis import Synthesis
    from hccc.synthesis_sizes import SizesSynthesis

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
        "hccc.api",
    ),
    **dict.fromkeys(("Problem", "Source", "UserError"), "hccc.diagnostics"),
    "Compiled": "hccc.driver",
    "Plan": "hccc.ir.plan",
    "Program": "hccc.ir.program",
    "Topology": "hccc.ir.topology",
    "Transport": "hccc.ir.transport",
    "Options": "hccc.options",
    "Written": "hccc.outputs",
    "Picture": "hccc.pictures.canvas",
    "Bounds": "hccc.predict.bounds",
    "Explanation": "hccc.predict.explanation",
    "Proof": "hccc.proofs.proof",
    "Simulation": "hccc.predict.simulation",
    "Call": "hccc.predict.simulation",
    "Sizes": "hccc.predict.simulation",
    "Synthesis": "hccc.synthesis",
    "SizesSynthesis": "hccc.synthesis_sizes",
}
__all__ = [
    "Bounds",
    "Call",
    "Compiled",
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
