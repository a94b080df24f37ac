"""libraries: the library of one standard collective: its programs, the choice, the build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from hccc.base.building.compiler import compiler_tag, find_compiler
from hccc.base.progress import tell
from hccc.driver import outputs
from hccc.driver.assumed import cluster_of
from hccc.driver.compilation import compile_library, compile_program
from hccc.driver.options import Options
from hccc.emit.kept import has_built, kept
from hccc.emit.targets import TARGETS
from hccc.ir.catalogue import MOST_BYTES, Catalogue, Range, assembled
from hccc.ir.choices import NetworkLowering, PlanProtocol
from hccc.ir.collective import REDUCING, OpType
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.passes.one_shot import MOST_RANKS
from hccc.passes.renumber import renumber
from hccc.passes.verify import verify
from hccc.proofs.prove import check_plan
from hccc.runtime.communicator.gpu_kernels import find_gpu_compiler
from hccc.runtime.communicator.kernels import built
from hccc.synth.builtin import registry
from hccc.synth.builtin.direct import direct

# Calls of fewer bytes exchange packets between ranks of a host; longer ones are as quick without.
_PACKETS = {
    OpType.ALLREDUCE: 2048,
    OpType.ALLGATHER: 4096,
    OpType.REDUCESCATTER: 4096,
    OpType.ALLTOALL: 4096,
    OpType.BROADCAST: 2048,
    OpType.REDUCE: 2048,
    OpType.GATHER: 4096,
    OpType.SCATTER: 4096,
}
SIZES = "8..256M"  # bytes of calls that a plan is chosen for; larger ones take the last
# By the built-in algorithms that are weighed: over shared memory every rank reaches every other, so
# what goes round about (hierarchical, NCCL's trees) moves more. Rings of many ranks take long to
# find, and are never the best there. Between hosts, gateways spare the network.
_WEIGHED = ("direct", "recursive", "binomial")
_BETWEEN_HOSTS = "hierarchical"
_RINGS = 4  # ranks at most


def programs(op: OpType, where: Topology, root: int = 0, *, uneven: bool = False) -> list[Program]:
    """Returns the programs of a collective that are weighed, verified. uneven: blocks have lengths
    of their own."""
    if len(where) == 1:  # without transfers
        made = [direct(where, op)]
    else:
        names = [*_WEIGHED, *(["ring"] if len(where) <= _RINGS else [])]
        if where.node[0] != where.node[-1]:
            names.append(_BETWEEN_HOSTS)
        found = [name for name in registry.serving(op) if name in names]
        made = [registry.make(name, where, op, root) for name in found]
    if uneven:
        made = [replace(one, collective=replace(one.collective, uneven=True)) for one in made]
    return [verify(one) for one in made]


def standard_library(
    op: OpType,
    where: Topology,
    root: int = 0,
    *,
    uneven: bool = False,
    reductions: Sequence[str] = (),
    numbers: Sequence[int] = (),
) -> Catalogue:
    """Compiles and proves the library of a collective for ranks of one host, or of several; through
    slots where the fastest plan lacks one of the reductions.

    numbers: what each rank of `where` is called, and `root` with it; none: as it is there.
    """
    if numbers:
        root = numbers.index(root)
    tell("Making programs")
    weighed = programs(op, where, root, uneven=uneven)
    name, options = _name(op, uneven), Options(sizes=SIZES)
    made = compile_library(weighed, options, where, name=name).catalogue
    if op in REDUCING and not {*reductions} <= {*made.narrowest.operations}:
        slots = replace(options, network_lowering=NetworkLowering.SLOTS)
        made = compile_library(weighed, slots, where, name=name).catalogue
    if op in _PACKETS and not uneven and where.cores.any() and _one_hop(where):
        made = _with_packets(made, direct(where, op, root), _PACKETS[op])
    return _renumbered(made, numbers) if numbers else made


def _one_hop(where: Topology) -> bool:
    """Tells whether packets take one hop of all ranks, which are processes of a host."""
    return 1 < len(where) <= MOST_RANKS and where.node[0] == where.node[-1]


def _with_packets(made: Catalogue, program: Program, below: int) -> Catalogue:
    """Returns a library in which packets are exchanged in calls of fewer bytes than `below`. What
    they take between processes is measured, not simulated (`benchmarks/protocols.py`)."""
    options = Options(protocol=PlanProtocol.LL, channels=1, tune="off")
    plan = replace(compile_program(program, options).plan, max_bytes=below)
    later = [
        part._replace(begin=max(part.begin, below))
        for part in made.ranges
        if (made.end(part) or MOST_BYTES) > below
    ]
    own = len(made.plans)
    first = [Range(kind, 0, own, plan.window, plan.grain) for kind in made.modes]
    return assembled(made.name, [*made.plans, plan], [*first, *later], made.provenance)


def _renumbered(made: Catalogue, numbers: Sequence[int]) -> Catalogue:
    """Returns a library with its ranks renumbered, and proves it."""
    tell("Proof")
    plans = tuple(renumber(plan, np.array(numbers)) for plan in made.plans)
    for plan in plans:
        check_plan(plan)
    provenance = made.provenance and replace(made.provenance, cluster=None)
    return replace(made, plans=plans, provenance=provenance)


def _name(op: OpType, uneven: bool) -> str:
    return f"standard_{op.value.lower()}{'v' * uneven}"


def build_standard(
    op: OpType,
    hosts: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    reductions: Sequence[str] = ("sum",),
    root: int = 0,
    *,
    uneven: bool = False,
    platform: str = "cpu",
) -> Path:
    """Builds a collective's library for a platform, for each type and reduction (where nothing is
    reduced, for each width), and returns its file in the user's cache. hosts: the ranks of each,
    in a row or not.

    Raises:
        UserError: E412 to E414 it cannot be built; E424, and anything wrong with the cluster of
        HCCC_CLUSTER.
    """
    if platform != "cpu":
        find_gpu_compiler(platform)
    elif not compiler_tag() and not has_built(f"{_name(op, uneven)}_cpu"):
        find_compiler()  # says so before seconds of work
    where = cluster_of([len(ranks) for ranks in hosts], platform)
    numbers = [*chain(*hosts)]
    in_a_row = numbers == [*range(len(numbers))]
    place = kernels(
        op,
        where,
        root,
        uneven=uneven,
        reductions=reductions,
        numbers=() if in_a_row else numbers,
        platform=platform,
    )
    tell("Building kernels")
    return built(place, dtypes, reductions, platform)


def kernels(
    op: OpType,
    where: Topology,
    root: int = 0,
    *,
    uneven: bool = False,
    reductions: Sequence[str] = (),
    numbers: Sequence[int] = (),
    platform: str = "cpu",
) -> Path:
    """Emits a collective's kernels for a platform into the user's cache, and returns their
    directory. The other arguments are those of `standard_library`.

    Raises:
        UserError: E413 there is no place for them.
    """
    target = next(target for target in TARGETS if target.name == platform)
    made = standard_library(op, where, root, uneven=uneven, reductions=reductions, numbers=numbers)
    return kept(outputs.kernels(made, [target]))
