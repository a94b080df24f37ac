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
        check,
        compile,
        draw,
        explain,
        load_cluster,
        show,
        simulate,
        write,
    )
    from hccc.diagnostics import Problem, Source, UserError
    from hccc.driver import Compiled
    from hccc.ir.plan import Plan
    from hccc.ir.program import Program
    from hccc.ir.topology import Topology
    from hccc.ir.transport import Transport
    from hccc.options import Options
    from hccc.predict.simulation import Call, Sizes

_HOME = {
    **dict.fromkeys(
        ("check", "compile", "draw", "explain", "load_cluster", "show", "simulate", "write"),
        "hccc.api",
    ),
    **dict.fromkeys(("Problem", "Source", "UserError"), "hccc.diagnostics"),
    "Compiled": "hccc.driver",
    "Plan": "hccc.ir.plan",
    "Program": "hccc.ir.program",
    "Topology": "hccc.ir.topology",
    "Transport": "hccc.ir.transport",
    "Options": "hccc.options",
    "Call": "hccc.predict.simulation",
    "Sizes": "hccc.predict.simulation",
}
__all__ = [
    "Call", "Compiled", "Options", "Plan", "Problem", "Program", "Sizes", "Source", "Topology",
    "Transport", "UserError", "__version__", "check", "compile", "draw", "explain",
    "load_cluster", "show", "simulate", "write",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hccc' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
