"""arguments: what the functions of the Python interface are given, as the values they work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hccc.base.diagnostics import Source, fail
from hccc.driver import inputs
from hccc.driver.assumed import common_cluster, tuned_for
from hccc.driver.compilation import Where
from hccc.driver.compiled import Compiled, LoadedDirectory
from hccc.driver.inputs import ClusterInput, Input, JobInput, opened
from hccc.driver.load import load
from hccc.driver.options import Options, check_integer
from hccc.ir.collective import OpType, collective_named
from hccc.ir.demand import Demand
from hccc.ir.job import Job, VendorClusters
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.topology import Topology

Algorithm = str | Path | Source | Program | Input
Given = Algorithm | Plan | Compiled
Cluster = Topology | str | Path
ClusterMaker = Callable[[Program], Topology | None]


def load_cluster(cluster: str | Path | Source) -> Topology:
    """Loads the cluster in a file, or in a text (a `str` of more than one line, or a `Source`).

    Raises:
        UserError: anything wrong with it.
    """
    given = inputs.path_or_text(cluster)
    return inputs.load_cluster(given) if isinstance(given, Path) else inputs.parse_cluster(given)


def topology_of(cluster: Cluster | None) -> Topology | None:
    """Returns a cluster, loaded if it is a file; None for none."""
    if cluster is None or isinstance(cluster, Topology):
        return cluster
    return load_cluster(cluster)


def collective_of(
    cluster: Cluster, collective: str | Demand, root: int
) -> tuple[Topology, OpType | Demand]:
    """Returns the cluster to synthesize for, and the collective or the demand.

    Raises:
        UserError: E465 there is no such collective; E410 no such root; what `load_cluster` raises.
    """
    where = topology_of(cluster)
    assert where is not None  # a cluster was given
    check_integer("root", root, 0, len(where) - 1)
    if isinstance(collective, Demand):
        return where, collective
    return where, collective_named(collective)


def paths_of(*given: object) -> list[Path]:
    """Returns the paths among the values, and the directories that plans were read from."""
    places = [one.directory if isinstance(one, LoadedDirectory) else one for one in given]
    return [
        Path(one)
        for one in places
        if isinstance(one, Path) or (isinstance(one, str) and "\n" not in one)
    ]


def where(
    cluster: Cluster | ClusterMaker | None, options: Options | None, targets: Sequence[str] = ()
) -> Where:
    """Returns the cluster to compile for, or what makes it of the program, also if none is given.

    targets: that kernels are for; all without.
    """
    known = cluster if callable(cluster) else topology_of(cluster)
    return known or tuned_for(options or Options(), targets)


def compiled_of(
    given: Given,
    cluster: Cluster | ClusterMaker | None,
    options: Options | None,
    targets: Sequence[str] = (),
) -> Compiled:
    """Returns what was compiled before, or compiles it."""
    if isinstance(given, Compiled):
        return given
    return load(opened(given), options, where(cluster, options, targets))


def simulated(
    given: Given, cluster: Cluster | None, options: Options | None
) -> tuple[Compiled, Topology]:
    """Returns the library to simulate, compiled if need be, and the cluster to simulate it on.

    Raises:
        UserError: E424 nothing says on what cluster.
    """
    from hccc.predict import simulation

    known = topology_of(cluster)
    if not isinstance(given, Compiled):
        given = opened(given)
        simulation.check_cluster(given, known)
    compiled = compiled_of(given, known or common_cluster, options)
    return compiled, simulation.cluster_of(compiled, known)


def job_and_cluster(
    given: str | Path | Source | Job,
    cluster: Cluster | None,
    clusters: VendorClusters | None = None,
) -> tuple[Job, Topology | None]:
    """Returns a job, read and checked, and the cluster, if one is given; clusters: of a text where
    none is.

    Raises:
        UserError: E407 it is no job; what `job_of` raises.
    """
    where, what = topology_of(cluster), opened(given)
    if not isinstance(what, JobInput):
        name = inputs.name_of(what)
        raise fail("E407", f"{name}: not a job", help="`hccc builtin hetccl` writes one")
    return inputs.job_of(what, where, clusters), where


def job_on(given: Job, cluster: Cluster | None) -> tuple[Job, Topology]:
    """Returns as `job_and_cluster` a job and the cluster that it is simulated on.

    Raises:
        UserError: also E424 without a cluster.
    """
    from hccc.predict.simulation import no_cluster

    job, where = job_and_cluster(given, cluster)
    if where is None:
        raise no_cluster()
    return job, where


def drawn(
    given: Given | Topology, cluster: Cluster | None, options: Options | None
) -> Compiled | Topology:
    """Returns the cluster to draw, or the library, compiled if need be."""
    if isinstance(given, Compiled):
        return given
    given = opened(given)
    if isinstance(given, ClusterInput):
        return inputs.cluster_of(given)
    return compiled_of(given, cluster, options)
