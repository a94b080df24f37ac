"""carried: plans, kernels and CPU references from prepare.py, for a machine without compilers.

`carried/made` has a folder for the kernels of each plan, `cases.json` with the plans, and
`manifest.json`: of which state of this checkout they were made, and for which GPU.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu import cases
from benchmarks.gpu.cases import GpuCase, GpuCases
from benchmarks.gpu.measured_machine import KernelKind
from benchmarks.gpu.paths import CARRIED, ROOT
from hccc.ir import plan_json
from hccc.ir.plan import Plan

MADE = CARRIED / "made"
MOST = 64 << 20  # bytes that may be carried along
OF = ("compiler", "runtime", "templates", "examples", "benchmarks")
TEXTS = frozenset(
    {".py", ".h", ".inc", ".cpp", ".cu", ".jinja", ".lark", ".toml", ".rccl", ".json"}
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is carried: state of the checkout, the GPU's architecture and units, and which settings
    and programs it is for."""

    state: str
    arch: str
    units: int
    quick: bool
    only: str


@dataclass(frozen=True, slots=True, eq=False)
class CarriedKernel:
    """A kernel to build: its plan, its folder within `made`, and dtype; kind: None for the CPU's,
    which others are compared with."""

    plan: Plan
    folder: str
    dtype: str
    kind: KernelKind | None


def state() -> str:
    """Hashes everything in this checkout that plans and kernels are made of."""
    found = hashlib.sha256()
    for name in OF:
        for path in sorted((ROOT / name).rglob("*")):
            if path.suffix in TEXTS and path.is_file() and CARRIED not in path.parents:
                found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def kernels(found: GpuCases) -> Iterator[CarriedKernel]:
    """Yields the kernels of a run, in the order of its parts."""
    for name, plan in found.checks:
        if plan is None:
            continue
        for dtype in cases.check_dtypes(name):
            folder = cases.check_folder(name, dtype)
            yield CarriedKernel(plan, f"{folder}/device", dtype, KernelKind.GENERATED)
            yield CarriedKernel(plan, f"{folder}/host", dtype, None)
    for case in found.short:
        for dtype in cases.DTYPES:
            kind = KernelKind.SYSTEM
            yield CarriedKernel(case.plan, case.folder("packets", dtype, kind), dtype, kind)
    for case in found.bodies:
        for dtype in cases.DTYPES:
            kind = KernelKind.GENERATED
            yield CarriedKernel(case.plan, case.folder("bodies", dtype, kind), dtype, kind)
    for case in found.swept:
        for dtype in cases.DTYPES:
            for kind in KernelKind:
                yield CarriedKernel(case.plan, case.folder("sizes", dtype, kind), dtype, kind)
    for case in found.timed:
        for kind in (KernelKind.GENERATED, KernelKind.INTERPRETED):
            folder = case.folder("interpreter", cases.DTYPE, kind)
            yield CarriedKernel(case.plan, folder, cases.DTYPE, kind)


def save(found: GpuCases, manifest: Manifest, place: Path) -> None:
    """Writes the plans, and then what they are for."""
    groups = {name: [_as_json(c) for c in getattr(found, name)] for name in _GROUPS}
    checks = [[name, plan and plan_json.dumps(plan)] for name, plan in found.checks]
    made = {"checks": checks, "large": found.large, **groups}
    (place / "cases.json").write_text(json.dumps(made), encoding="utf-8")
    (place / "manifest.json").write_text(json.dumps(asdict(manifest)), encoding="utf-8")


def load(wanted: Manifest, place: Path) -> GpuCases | str:
    """Returns the plans that are carried, or why they are not those of this run."""
    file = place / "manifest.json"
    if not file.is_file():
        return "nothing is carried along (python -m benchmarks.gpu.prepare)"
    there = Manifest(**json.loads(file.read_text(encoding="utf-8")))
    if there.state != wanted.state:
        return "this checkout has changed since prepare.py: run it again"
    if there != wanted:
        return f"what is carried is for {_words(there)}, this run is of {_words(wanted)}"
    made = json.loads((place / "cases.json").read_text(encoding="utf-8"))
    checks = tuple((name, plan and plan_json.loads(plan)) for name, plan in made["checks"])
    groups = {name: tuple(_of_json(c) for c in made[name]) for name in _GROUPS}
    return GpuCases(checks, large=tuple(made["large"]), **groups)


_GROUPS = ("short", "bodies", "swept", "timed")


def _as_json(case: GpuCase) -> list[str]:
    return [case.name, case.fuse, case.transport, plan_json.dumps(case.plan)]


def _of_json(fields: list[str]) -> GpuCase:
    name, fuse, transport, plan = fields
    return GpuCase(name, fuse, plan_json.loads(plan), transport)


def _words(m: Manifest) -> str:
    which = f", programs with {m.only!r}" if m.only else ""
    return f"{m.arch} with {m.units} units{', --quick' if m.quick else ''}{which}"
