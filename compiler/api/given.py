"""given: what the Python interface takes for an algorithm and a cluster, as what it is.

A path, a text, or what was made of them before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.driver import compilation as driver
from hccc.driver import inputs
from hccc.driver.compiled import Compiled, LoadedDirectory, LoadedPlans
from hccc.driver.options import Options, check_integer
from hccc.driver.pass_manager import OnPhase
from hccc.ir import plan_check
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import OpType, collective_named
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.topology import Topology

Algorithm = str | Path | Source | Program
Given = Algorithm | Plan | Compiled
Cluster = Topology | str | Path
Made = Callable[[Program], Topology | None]


def load_cluster(cluster: str | Path | Source) -> Topology:
    """The cluster in a file, or in a text (a `str` of more than one line, or a `Source`).

    Raises:
        UserError: anything wrong with it.
    """
    given = source(cluster)
    return inputs.load_cluster(given) if isinstance(given, Path) else inputs.parse_cluster(given)


def source(given: object) -> Path | Source:
    """A path, or a text. Raises UserError: E401 of "", E410 of anything else."""
    if given == "":
        raise fail("E401", "an empty path is no file")
    if not isinstance(given, str | Path | Source):
        kind = type(given).__name__
        raise fail("E410", f"neither a path nor a text: {kind}", help="give a path or a text")
    if isinstance(given, str) and "\n" in given:
        return Source("<text>", given)
    return given if isinstance(given, Source) else Path(given)


def files(*given: object) -> list[Path]:
    """What of it lies somewhere: paths, and directories that were compiled before."""
    places = [one.directory if isinstance(one, LoadedDirectory) else one for one in given]
    return [
        Path(one)
        for one in places
        if isinstance(one, Path) or (isinstance(one, str) and "\n" not in one)
    ]


def collective_of(cluster: Cluster, collective: str, root: int) -> tuple[Topology, OpType]:
    """What to synthesize, and for which cluster.

    Raises:
        UserError: E465 there is no such collective; E410 no such root; what `load_cluster` raises.
    """
    where = topology_of(cluster)
    assert where is not None  # a cluster was given
    check_integer("root", root, 0, len(where) - 1)
    return where, collective_named(collective)


def topology_of(cluster: Cluster | None) -> Topology | None:
    """A cluster that was loaded, now or before."""
    if cluster is None or isinstance(cluster, Topology):
        return cluster
    return load_cluster(cluster)


def compiled_of(
    given: Given, cluster: Cluster | None, options: Options | None, on_phase: OnPhase
) -> Compiled:
    """What was compiled, now or before."""
    match given:
        case Compiled():
            return given
        case Plan():
            plan_check.check(given)
            return LoadedPlans.of(Catalogue.of(given))
        case _:
            where = topology_of(cluster)
            if isinstance(given, Program):
                return driver.compile_program(given, options, where, on_phase=on_phase)
            return inputs.load(source(given), options, where, on_phase=on_phase)


def simulated(
    given: Given, cluster: Cluster | None, options: Options | None, on_phase: OnPhase
) -> tuple[Compiled, Topology]:
    """What is simulated, and where."""
    from hccc.predict import simulation

    where = topology_of(cluster)
    if isinstance(given, str | Path | Source):
        given = inputs.opened(source(given))
        simulation.check_cluster(given, where)
    compiled = compiled_of(given, where, options, on_phase)
    return compiled, simulation.cluster_of(compiled, where)


def drawn_of(
    given: Given | Topology,
    cluster: Cluster | None,
    options: Options | None,
    on_phase: OnPhase,
) -> Compiled | Topology:
    """What is drawn: a cluster, or what was compiled."""
    if isinstance(given, Topology):
        return given
    if isinstance(given, str | Path | Source):
        given = inputs.opened(source(given))
        if inputs.is_cluster(given):
            return inputs.parse_cluster(given)
    return compiled_of(given, cluster, options, on_phase)
