"""jobs: jobs over several vendors, which process groups run instead of libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hccc.base.diagnostics import UserError
from hccc.base.files.reading import read_text
from hccc.base.limits import PLAN_BYTES
from hccc.ir import job_table
from hccc.ir.collective import spelled
from hccc.ir.job import Job
from hccc.runtime.communicator.errors import CommunicatorError
from hccc.runtime.job.loaded import LoadedJob, MicroBatches
from hccc.runtime.job.standard import StandardJobs


@dataclass(frozen=True, slots=True, eq=False)
class AddedJob:
    """A job that groups may load. group: the name of the only group that has it; None: all have.
    The rest is as of `Communicator.load`."""

    job: Job
    group: str | None
    vendor: str | None = None
    file: Path | str | None = None
    micro_batches: MicroBatches = ()


_ADDED: list[AddedJob] = []  # the last one goes first


def of_table(
    place: Path,
    group: str | None = None,
    vendor: str | None = None,
    file: Path | str | None = None,
    micro_batches: MicroBatches = (),
) -> AddedJob:
    """Reads the job of a table, with its micro-batches unless others are given. Raises UserError
    E401, E402, E404 or E407 where it is none, E208 for a job that is not sound."""
    job, own = job_table.loads(read_text(place, PLAN_BYTES), str(place))
    return AddedJob(job, group, vendor, file, micro_batches or own)


def add(job: AddedJob) -> None:
    """Adds a job, which goes before those that were added earlier."""
    _ADDED.append(job)


def add_behind(jobs: Sequence[AddedJob]) -> None:
    """Adds jobs, the last of which goes first, behind all that were added."""
    _ADDED[:0] = jobs


def additions() -> int:
    """Returns how many jobs were added."""
    return len(_ADDED)


@dataclass(slots=True)
class GroupJobs:
    """The jobs of one communicator of a group, each loaded at its first call."""

    group: str
    n_ranks: int
    _loaded: dict[AddedJob, LoadedJob] = field(default_factory=dict)
    _standard: StandardJobs | None = None
    _asked: bool = False  # whether there are standard jobs

    def fitting(self, collective: str, root: int) -> AddedJob | None:
        """Returns the job of a call, the last one added that fits. root: -1 for none."""
        for one in reversed(_ADDED):
            c = one.job.collective
            here = one.group in (None, self.group) and c.n_ranks == self.n_ranks and not c.uneven
            if here and spelled(collective) == (c.op, False) and (root < 0 or c.root == root):
                return one
        return None

    def any(self, communicator: int, rank: int) -> bool:
        """Tells whether jobs make calls. The first time it is collective where devices are on
        several hosts."""
        fits = (
            one.group in (None, self.group) and one.job.collective.n_ranks == self.n_ranks
            for one in _ADDED
        )
        return any(fits) or self._standard_jobs(communicator, rank) is not None

    def run(
        self,
        communicator: int,
        rank: int,
        collective: str,
        root: int,
        send: int,
        receive: int,
        count: int,
        numbers: tuple[int, int],
        timeout: float,
        stream: int,
    ) -> tuple[str, str] | None:
        """Makes a call by the job that fits it: (its name, the error or ""); None: no job fits.

        send, receive, stream: 0 for none; numbers: of the type and the reduction; timeout: seconds,
        0 for no limit.
        """
        words = (send or None, receive or None, count, *numbers, timeout, stream or None)
        added, name = self.fitting(collective, root), ""
        try:
            if added is None:
                job = self._made(communicator, rank, collective, root)
                if job is None:
                    return None
            else:
                if added not in self._loaded:
                    given = (added.job, added.vendor, added.file, added.micro_batches)
                    self._loaded[added] = LoadedJob(communicator, rank, *given)
                job = self._loaded[added]
            name = job.job.name
            job.run(*words)
        except CommunicatorError as error:
            return name, error.text
        except UserError as error:
            return name, str(error)
        return name, ""

    def _made(self, communicator: int, rank: int, collective: str, root: int) -> LoadedJob | None:
        """Returns the job that is made for a call where no kernels serve it."""
        standard, found = self._standard_jobs(communicator, rank), spelled(collective)
        if standard is None or found is None or found[1]:
            return None
        return standard.job(found[0], root)

    def _standard_jobs(self, communicator: int, rank: int) -> StandardJobs | None:
        if not self._asked:
            self._standard = StandardJobs.of(communicator, rank, self.n_ranks)
            self._asked = True
        return self._standard

    def end(self) -> None:
        """Ends the jobs; the second time nothing."""
        for job in self._loaded.values():
            job.end()
        self._loaded.clear()
        if self._standard is not None:
            self._standard.end()
