"""source: Plan → the text of one translation unit (`--emit=cuda|hip|cpu`)."""

from __future__ import annotations

from collections.abc import Sequence

from hccc.base.render import render
from hccc.emit.kernels.view import views
from hccc.emit.targets import CPU, CUDA, HIP, Target
from hccc.ir.plan import Plan


def cuda(plan: Plan) -> str:
    """Emits CUDA C++, for nvcc or NVRTC."""
    return text(plan, CUDA)


def hip(plan: Plan) -> str:
    """Emits HIP C++."""
    return text(plan, HIP)


def cpu(plan: Plan) -> str:
    """Emits C++ for the host compiler."""
    return text(plan, CPU)


def text(plan: Plan, target: Target) -> str:
    """Emits the translation unit of one target; the same text for the same plan, always."""
    return texts(plan, [target])[0]


def texts(plan: Plan, targets: Sequence[Target]) -> list[str]:
    """Emits the translation units of several targets, in little more than the time of one."""
    return [render("kernel.jinja", one) for one in views(plan, targets)]
