"""subject: the text of an editor, read: the program, job or cluster in it, or what is wrong.

A program's or a job's text may name the cluster that it is meant for, in a comment of its own line,
which only editors read:

    # cluster: dgx-h100
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from hccc.base.diagnostics import Source, Span, UserError
from hccc.driver.inputs import ClusterInput, JobInput, ProgramInput, cluster_of, job_of, kind_of
from hccc.driver.inputs import load_cluster as cluster_in
from hccc.ir.job import Job
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.lang.transfer.jobs import check_syntax
from hccc.lang.transfer.load import parse
from hccc.passes.expand import expand

NAMED = re.compile(r"^[ \t]*#[ \t]*cluster:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
KINDS = {ProgramInput: "program", JobInput: "job", ClusterInput: "cluster"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text in an editor. name: the path of its file; cluster: the one to use where it names
    none, "" for common nodes; size: bytes of the calls that are simulated."""

    text: str
    name: str
    cluster: str = ""
    size: str = "64M"

    @property
    def source(self) -> Source:
        """The text as the languages read it."""
        return Source(self.name, self.text)

    @property
    def kind(self) -> str | None:
        """Its language: `program`, `job` or `cluster`; None for any other."""
        return KINDS.get(kind_of(self.text, self.name))


@dataclass(frozen=True, slots=True, eq=False)
class ReadText:
    """What was read. program: its transfers, those of a job that it amounts to; None of a cluster,
    and of a job without one. topology: the cluster that was named, or that the text is."""

    text: Text
    program: Program | None = None
    job: Job | None = None
    topology: Topology | None = None


@lru_cache(maxsize=4)
def read(text: Text) -> ReadText:
    """Reads a text, and the cluster that is named. Raises UserError."""
    match text.kind:
        case "program":
            return ReadText(text, program=parse(text.source), topology=_named(text))
        case "job":
            check_syntax(text.source)
            topology = _named(text)
            if topology is None:
                return ReadText(text)
            job = job_of(JobInput(text.source), topology)
            return ReadText(text, expand(job), job, topology)
        case "cluster":
            return ReadText(text, topology=cluster_of(ClusterInput(text.source)))
    return ReadText(text)


def place_of_name(text: Text) -> Span | None:
    """Returns the place where the text names its cluster; None where it does not."""
    found = NAMED.search(text.text)
    if found is None or text.kind == "cluster":
        return None
    line = text.text.count("\n", 0, found.start(1)) + 1
    begin = text.text.rfind("\n", 0, found.start(1)) + 1
    return Span(text.source, line, found.start(1) - begin + 1, found.end(1) - begin + 1)


def _named(text: Text) -> Topology | None:
    """Returns the cluster that the text or the settings name. Raises UserError, at the name."""
    at = place_of_name(text)
    name = at.source.line(at.line)[at.column - 1 : at.end - 1] if at else text.cluster
    if not name:
        return None
    beside = Path(text.name).parent / name
    try:
        return cluster_in(beside if beside.is_file() else Path(name))
    except UserError as error:
        if at is None or error.problem.span is not None:
            raise
        raise UserError(replace(error.problem, span=at)) from None
