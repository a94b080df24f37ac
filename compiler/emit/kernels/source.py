"""source: Plan → the text of one translation unit (`--emit=cuda|hip|cpu`)."""

from __future__ import annotations

from hccc.emit.kernels.view import view
from hccc.emit.targets import CPU, CUDA, HIP, Target
from hccc.ir.plan import Plan
from hccc.render import render


def cuda(plan: Plan) -> str:
    """CUDA C++, for nvcc or NVRTC."""
    return text(plan, CUDA)


def hip(plan: Plan) -> str:
    """HIP C++."""
    return text(plan, HIP)


def cpu(plan: Plan) -> str:
    """C++ for the host compiler."""
    return text(plan, CPU)


def text(plan: Plan, target: Target) -> str:
    """The translation unit of one target; the same text for the same plan, always."""
    return render("kernel.jinja", view(plan, target))
