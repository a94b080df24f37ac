"""kernels: a platform's library of an emitted directory, built for some dtypes and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from hccc.base.diagnostics import fail
from hccc.base.dtypes import STAND_IN
from hccc.ir import catalogue_json
from hccc.runtime.build import Variant, build_several
from hccc.runtime.communicator.gpu_kernels import build_for_gpu

PLAN = "plan.json"


NAMES = {"cpu": "the CPU", "cuda": "CUDA", "hip": "HIP"}


def built(
    place: Path,
    dtypes: Sequence[str],
    ops: Sequence[str],
    platform: str = "cpu",
    *,
    trace: bool = False,
) -> Path:
    """Builds the shared library of all its plans, for each type and reduction; where nothing is
    reduced, for each width. trace: whether launches can be recorded.

    Raises:
        UserError: E41x it cannot be built; E473 there are no kernels for the platform.
    """
    if not (place / PLAN).is_file():
        message = f"{place}: is no directory of kernels"
        raise fail("E473", message, help="`hccc algo.rccl -o DIR` emits one")
    library = catalogue_json.loads((place / PLAN).read_text(encoding="utf-8"), str(place / PLAN))
    dispatch = place / f"{library.name}_{platform}_dispatch.cpp"
    if not dispatch.is_file():
        message = f"{place}: has no kernels for {NAMES[platform]}"
        raise fail("E473", message, help=f"emit it with --emit={platform}")
    ending = {"cpu": "_cpu.cpp", "cuda": ".cu", "hip": ".hip"}[platform]
    sources = [place / f"{plan.name}{ending}" for plan in library.plans]
    moves = (Variant(STAND_IN[dtype], trace=trace) for dtype in dtypes)
    reduces = (Variant(dtype, op, trace) for dtype, op in product(dtypes, ops))
    wanted = list(dict.fromkeys(reduces if library.plans[0].reduces else moves))
    if platform == "cpu":
        return build_several(dispatch, sources, wanted)
    return build_for_gpu(platform, dispatch, sources, wanted)
