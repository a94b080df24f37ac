"""inputs: what was given: a program, a plan, MSCCL XML, a schedule of TE-CCL, a directory of
kernels or a cluster.

`opened` makes one value of it, once, from a path, a text or a value; whoever needs to know which it
is matches on its type. A file's content says what it is, not its name. Clusters are loaded here,
too; `load` compiles programs and reads plans.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hccc.base.diagnostics import Source, fail
from hccc.base.files.plain import is_plain
from hccc.base.files.reading import HEAD, read_text_in
from hccc.base.interruptible import interruptible
from hccc.driver.compiled import Compiled
from hccc.ir import job_json, plan_json
from hccc.ir.demand import Demand
from hccc.ir.job import Job, VendorClusters
from hccc.ir.names import PLAN_FILE
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.sketch import Allotment
from hccc.ir.topology import Topology
from hccc.lang import demand as demand_language
from hccc.lang import teccl
from hccc.lang.cluster import load as cluster_language
from hccc.lang.cluster.faults import with_faults
from hccc.lang.msccl import load as msccl
from hccc.lang.sketch import load as sketch_language
from hccc.lang.transfer import load as transfer
from hccc.lang.transfer.jobs import parse_job
from hccc.network.dimensions import dimensions
from hccc.network.vendor_clusters import divisions
from hccc.passes.verify_job import verify_job
from hccc.shipped import find as shipped


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """A program: its text, or what a text was parsed to."""

    program: Source | Program
    most: ClassVar[int] = transfer.MAX_BYTES  # bytes of a file, here and below


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The JSON of a plan or a catalogue, or a Plan."""

    plan: Source | Plan
    most: ClassVar[int] = plan_json.MAX_BYTES


@dataclass(frozen=True, slots=True)
class XmlInput:
    """An algorithm as MSCCL XML."""

    xml: Source
    most: ClassVar[int] = msccl.MAX_BYTES


@dataclass(frozen=True, slots=True)
class DirectoryInput:
    """A directory of kernels that `hccc ALGO -o` wrote; plan: its plan's JSON."""

    directory: Path
    plan: Source


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """A cluster: its text, or what a text was parsed to."""

    cluster: Source | Topology
    most: ClassVar[int] = cluster_language.MAX_BYTES


@dataclass(frozen=True, slots=True)
class JobInput:
    """A job: its text or JSON, or what one was parsed to."""

    job: Source | Job
    most: ClassVar[int] = transfer.MAX_BYTES


Input = ProgramInput | PlanInput | XmlInput | DirectoryInput | ClusterInput | JobInput
Text = type[ProgramInput] | type[PlanInput] | type[XmlInput] | type[ClusterInput] | type[JobInput]


def opened(given: object) -> Input:
    """Says what was given, and reads it if it is a path.

    given: a path, or the name of a file that ships; a text (a `str` of more than one line, or a
    Source); a Program, Plan or Topology; or an Input, which is returned.

    Raises:
        UserError: E401, E402, E404 it cannot be read; E410 it is nothing of these.
    """
    match given:
        case (
            ProgramInput()
            | PlanInput()
            | XmlInput()
            | DirectoryInput()
            | ClusterInput()
            | JobInput()
        ):
            return given
        case Job():
            return JobInput(given)
        case Program():
            return ProgramInput(given)
        case Plan():
            return PlanInput(given)
        case Topology():
            return ClusterInput(given)
    match path_or_text(given):
        case Source() as source:
            return _of_text(source)
        case path if path.is_dir():
            if not is_plain(path, PLAN_FILE):
                message = f"{path}: a directory without {PLAN_FILE}"
                raise fail("E401", message, help="`hccc ALGO -o DIR`")
            text = read_text_in(path, PLAN_FILE, PlanInput.most)
            return DirectoryInput(path, Source(str(path / PLAN_FILE), text))
        case path:
            source = shipped.read(path, lambda head: kind_of(head, str(path)).most)
            return _of_text(source)


@interruptible
def _of_text(source: Source) -> Input:
    """Returns what a text is; a schedule of TE-CCL is read at once, as programs are the rest of the
    way."""
    if teccl.begins(source.text):
        return ProgramInput(teccl.parse(source))
    return kind_of(source.text, source.name)(source)


def path_or_text(given: object) -> Path | Source:
    """Tells paths from texts. Raises UserError: E401 of "", E410 of anything else."""
    if given == "":
        raise fail("E401", "an empty path is no file")
    if not isinstance(given, str | Path | Source):
        kind = type(given).__name__
        raise fail("E410", f"neither a path nor a text: {kind}", help="give a path or a text")
    if isinstance(given, str) and "\n" in given:
        return Source("<text>", given)
    return given if isinstance(given, Source) else Path(given)


def read_demand(given: Path | Source, n_ranks: int) -> Demand:
    """Reads a demand among so many ranks. Raises `UserError`."""
    if isinstance(given, Source):
        return demand_language.parse(given, n_ranks)
    return demand_language.load(given, n_ranks)


def kind_of(text: str, name: str = "") -> Text:
    """Classifies a text by its content: no program begins with a brace or an angle bracket.

    A cluster is known by its `define` lines, so that a mistake in the first is told as what it
    is; where nothing tells, a file called `name` that ends in `.cluster` is one.
    """
    head = text[:HEAD]
    match head.lstrip("\ufeff \t\r\n")[:1]:
        case "{" if teccl.begins(head):
            return ProgramInput
        case "{":
            return JobInput if re.match(r'\s*{\s*"hccc_job"', head) else PlanInput
        case "<":
            return XmlInput
    if re.search(r"^\s*(def\s+)?ResCCLAlgo\b", head, re.MULTILINE):
        return ProgramInput
    if re.search(r"^\s*(def\s+)?HetCCLJob\b", head, re.MULTILINE):
        return JobInput
    defines = re.search(r"^\s*define\b", head, re.MULTILINE)
    return ClusterInput if defines or name.endswith(".cluster") else ProgramInput


def name_of(given: Input) -> str:
    """Returns what messages call an input: its path, or the name of the value."""
    match given:
        case DirectoryInput(directory):
            return str(directory)
        case (
            ProgramInput(value)
            | PlanInput(value)
            | XmlInput(value)
            | ClusterInput(value)
            | JobInput(value)
        ):
            return value.name


def cluster_of(given: ClusterInput) -> Topology:
    """Returns the cluster that was given. Raises UserError for anything wrong with its text."""
    cluster = given.cluster
    return cluster if isinstance(cluster, Topology) else parse_cluster(cluster)


_NO_CLUSTERS = "give --cluster, a job's .json, or `hccc run` --vendors mpich:4,own:2"


@interruptible
def job_of(
    given: JobInput, topology: Topology | None, clusters: VendorClusters | None = None
) -> Job:
    """Reads and checks the job that was given; a text is over the vendor clusters of `topology`,
    without one over `clusters`.

    Raises:
        UserError: E482 there is no cluster for a text, E438 one of another number of ranks for a
        file; anything wrong with the job.
    """
    job = given.job
    if isinstance(job, Source):
        if job.text.lstrip("\ufeff \t\r\n").startswith("{"):
            job = job_json.loads(job.text, job.name)
        elif topology is not None:
            job = parse_job(job, *divisions(topology))
        elif clusters is not None:
            job = parse_job(job, clusters)
        else:
            message = f"{job.name}: a job's text does not say its vendor clusters"
            raise fail("E482", message, help=_NO_CLUSTERS)
    if topology is not None and len(topology) != job.clusters.n_ranks:
        message = f"the job has {job.clusters.n_ranks} ranks, the cluster {len(topology)}"
        raise fail("E130", message, help="give the cluster that it was made for")
    return verify_job(job)


def read_sketches(given: Path | Source, t: Topology) -> Allotment:
    """Reads the sketches of a cluster. Raises `UserError`."""
    groups = {d.name: d.group for d in dimensions(t)}
    if isinstance(given, Source):
        return sketch_language.parse(given, groups)
    return sketch_language.load(given, groups)


def load_cluster(path: Path, failed: Sequence[str] = (), degraded: Sequence[str] = ()) -> Topology:
    """Reads the cluster in a file, or that ships by that name; `-` is stdin. failed, degraded: as
    in `with_faults`. Raises `UserError`."""
    source = shipped.read(path, cluster_language.MAX_BYTES, shipped.CLUSTERS)
    return parse_cluster(with_faults(source, failed, degraded))


@interruptible
def parse_cluster(source: Source) -> Topology:
    """Reads the cluster in a text, named as it is. Raises `UserError` for anything wrong."""
    return cluster_language.parse(source)


def recorded_cluster(compiled: Compiled) -> Topology | None:
    """Returns the cluster that plans were made for, as their file tells it; None where it does not.

    Raises:
        UserError: E1xx what the file says is no cluster, or not one of so many ranks.
    """
    made = compiled.catalogue.provenance or compiled.plan.provenance
    if compiled.topology is not None or made is None or made.cluster is None:
        return compiled.topology
    return parse_cluster(Source(made.cluster.name or "cluster", made.cluster.text))
