"""libraries: the library of one standard collective: its programs, the choice, the build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hccc.base.progress import tell
from hccc.driver import outputs
from hccc.driver.compilation import compile_library
from hccc.driver.options import Options
from hccc.emit.kept import kept
from hccc.emit.targets import TARGETS
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.passes.verify import verify
from hccc.runtime.communicator.kernels import built
from hccc.standard.host import host_cluster
from hccc.synth.builtin import registry
from hccc.synth.builtin.direct import direct

SIZES = "8..256M"  # bytes of calls that a plan is chosen for; larger ones take the last
# By the built-in algorithms that are weighed: over shared memory every rank reaches every other, so
# what goes round about (hierarchical, NCCL's trees) moves more. Rings of many ranks take long to
# find, and are never the best there.
_WEIGHED = ("direct", "recursive", "binomial")
_RINGS = 4  # ranks at most


def programs(op: OpType, ranks: int, root: int = 0, *, uneven: bool = False) -> list[Program]:
    """Returns the programs of a collective that are weighed, verified. uneven: blocks have lengths
    of their own."""
    where = host_cluster(ranks)
    if ranks == 1:  # without transfers
        made = [direct(where, op)]
    else:
        names = [*_WEIGHED, *(["ring"] if ranks <= _RINGS else [])]
        found = [name for name in registry.serving(op) if name in names]
        made = [registry.make(name, where, op, root) for name in found]
    if uneven:
        made = [replace(one, collective=replace(one.collective, uneven=True)) for one in made]
    return [verify(one) for one in made]


def standard_library(op: OpType, ranks: int, root: int = 0, *, uneven: bool = False) -> Catalogue:
    """Compiles and proves the library of a collective for ranks of one host.

    Raises:
        UserError: anything wrong with the cluster of HCCC_CLUSTER.
    """
    tell("Making programs")
    weighed = programs(op, ranks, root, uneven=uneven)
    name = f"standard_{weighed[0].collective.name.lower()}"
    options = Options(sizes=SIZES)
    made = compile_library(weighed, options, host_cluster(ranks), name=name)
    return made.catalogue


def build_standard(
    op: OpType,
    ranks: int,
    dtypes: Sequence[str],
    reductions: Sequence[str] = ("sum",),
    root: int = 0,
    *,
    uneven: bool = False,
) -> Path:
    """Builds a collective's library for the CPU, for each type and reduction (where nothing is
    reduced, for each width), and returns its file in the user's cache.

    Raises:
        UserError: E412 to E414 it cannot be built; what `standard_library` raises.
    """
    catalogue = standard_library(op, ranks, root, uneven=uneven)
    cpu = next(target for target in TARGETS if target.name == "cpu")
    place = kept(outputs.kernels(catalogue, [cpu]))
    return built(place, dtypes, reductions)
