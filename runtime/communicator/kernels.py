"""kernels: a platform's library of an emitted directory, built for some dtypes and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hccc.base.diagnostics import fail
from hccc.base.dtypes import STAND_IN, named
from hccc.base.files.plain import is_plain
from hccc.base.files.reading import read_text_in
from hccc.base.limits import PLAN_BYTES
from hccc.emit.kept import is_kept, kept_kernels
from hccc.emit.targets import TARGETS
from hccc.ir import catalogue_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.names import PLAN_FILE
from hccc.runtime.build import Variant, build_several, pairs
from hccc.runtime.communicator.gpu_kernels import build_for_gpu

NAMES = {"cpu": "the CPU", "cuda": "CUDA", "hip": "HIP"}


def _operation(library: Catalogue, op: str) -> str:
    """Returns the reduction of a name, or of a text of one's own. Raises UserError E411."""
    able = library.narrowest
    if (found := able.operation(op)) not in able.operations:
        help = f"it has {', '.join(map(named, able.operations))}"
        raise fail("E411", f"{library.name} has no reduction `{named(op)}`", help=help)
    return found


def library_file(path: Path, dtypes: Sequence[str], ops: Sequence[str], platform: str) -> Path:
    """Returns the file of a library: `path`, that of a platform in a directory where CMake has
    installed some, or what is `built` of a directory of kernels. Raises as these."""
    if path.is_file():
        return path
    return _installed(path, platform) or built(path, dtypes, ops, platform)


def _installed(place: Path, platform: str) -> Path | None:
    """Finds a platform's library in a directory of shared libraries, as CMake installs them; None:
    it is another directory. Raises UserError E473 where there is not one for the platform."""
    files = [] if is_plain(place, PLAN_FILE) else sorted(place.glob("*.so"))
    if not files:
        return None
    ends = {t.name: f"_{t.name}.so" for t in TARGETS if t.stream}  # else the CPU's
    platforms = [next((t for t, end in ends.items() if f.name.endswith(end)), "cpu") for f in files]
    found = [f for f, its in zip(files, platforms, strict=True) if its == platform]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} libraries" if found else "no library"
    help = f"name one file of {', '.join(f.name for f in files)}"
    raise fail("E473", f"{place}: has {what} for {NAMES[platform]}", help=help)


def has_kernels(place: Path, platform: str) -> bool:
    """Returns whether a directory that `hccc` emitted has kernels for a platform."""
    return any(is_plain(place, one.name) for one in place.glob(f"*_{platform}_dispatch.cpp"))


def built(
    place: Path,
    dtypes: Sequence[str],
    ops: Sequence[str],
    platform: str = "cpu",
    *,
    trace: bool = False,
    march: str = "",
) -> Path:
    """Builds the shared library of all its plans, for each type and reduction; where nothing is
    reduced, for each width. trace: whether launches can be recorded; march: the CPUs that it is
    for, by default this machine's.

    Nothing of the directory is compiled or loaded: it is compared with what its plan emits, which
    is built in this user's cache.

    Raises:
        UserError: E41x it cannot be built; E428 it holds something else; E473 there are no kernels
        for the platform.
    """
    if not is_plain(place, PLAN_FILE):
        message = f"{place}: is no directory of kernels"
        raise fail("E473", message, help="`hccc algo.rccl -o DIR` emits one")
    text = read_text_in(place, PLAN_FILE, PLAN_BYTES)
    library = catalogue_json.loads(text, str(place / PLAN_FILE))
    dispatcher = f"{library.name}_{platform}_dispatch.cpp"
    if not is_plain(place, dispatcher):
        message = f"{place}: has no kernels for {NAMES[platform]}"
        raise fail("E473", message, help=f"emit it with --emit={platform}")
    target = next(target for target in TARGETS if target.name == platform)
    if not is_kept(place):
        place = kept_kernels(place, library, [target])
    dispatch = place / dispatcher
    sources = [place / f"{plan.name}{target.suffix}" for plan in library.plans]
    moves = (Variant(STAND_IN[dtype], trace=trace) for dtype in dtypes)
    reduces = library.plans[0].reduces
    known = [_operation(library, op) for op in ops] if reduces else []
    reductions = (Variant(dtype, op, trace) for dtype, op in pairs(dtypes, known))
    wanted = list(dict.fromkeys(reductions if reduces else moves))
    if platform == "cpu":
        return build_several(dispatch, sources, wanted, march=march)
    return build_for_gpu(platform, dispatch, sources, wanted)
