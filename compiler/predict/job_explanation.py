"""job_explanation: where a simulated call of a Job spends its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.base.shown import brief, preformatted
from hccc.driver.facts import Facts
from hccc.ir.job import Job, JobOp
from hccc.ir.text import percent, size, time
from hccc.ir.topology import Topology
from hccc.predict.jobs import JobRun, lengths_of, simulate_job

_MOST_STEPS = 5


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """One simulated call of a Job."""

    job: Job
    cluster: str
    run: JobRun
    skew: str = ""

    def __repr__(self) -> str:
        run = self.run
        return brief(
            self, f"{self.job.name}, {size(run.size)}, on {self.cluster}: {time(run.time)}"
        )

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def crossing(self) -> dict[tuple[int, int], float]:
        """Returns the bytes that cross each border."""
        c = self.job.collective
        lengths = lengths_of(c, self.run.size, self.skew)
        whole = np.full(c.blocks, self.run.size / c.most_blocks()) if lengths is None else lengths
        hops = self.job.steps[self.job.steps["op"] >= JobOp.C2C_CPY]
        found: dict[tuple[int, int], float] = {}
        for pair, part in zip(hops[["src", "dst"]].tolist(), hops["part"].tolist(), strict=True):
            moved = float(whole[part // c.chunks_per_block]) / c.chunks_per_block
            found[pair] = found.get(pair, 0.0) + moved
        return dict(sorted(found.items()))

    def by_kind(self) -> dict[str, float]:
        """Returns µs of all steps of each kind, over all vendor clusters, the most first."""
        found: dict[str, float] = {}
        for task in self.run.tasks:
            kind = JobOp(int(self.job.steps["op"][task.step])).name.lower()
            found[kind] = found.get(kind, 0.0) + task.end - task.begin
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def facts(self) -> Facts:
        """Returns all figures, for JSON."""
        return {
            "job": self.job.name,
            "cluster": self.cluster,
            "size": self.run.size,
            "time": self.run.time,
            "micro_batches": self.run.batches,
            "time_of_one": self.run.one,
            "library": self.run.library,
            "border": self.run.border,
            "crossing": [[*pair, moved] for pair, moved in self.crossing().items()],
            "kinds": self.by_kind(),
        }

    def text(self) -> str:
        """Writes it for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        run, v = self.run, self.job.clusters
        yield f"{self.job.name}, {size(run.size)}, on {self.cluster}: {time(run.time)}"
        yield f"  micro-batches: {run.batches}; one alone takes {time(run.one)}"
        for c, said in enumerate(v.texts()):
            busy = [f"{percent(x / run.time)} %" for x in (run.library[c], run.border[c])]
            yield f"  vendor cluster {c} ({said}): library busy {busy[0]}, border {busy[1]}"
        for (a, b), moved in self.crossing().items():
            yield f"  over the border {a} to {b}: {size(moved)}"
        for kind, us in list(self.by_kind().items())[:_MOST_STEPS]:
            yield f"  all {kind} steps together: {time(us)}"
        lane = "library" if max(run.library) >= max(run.border) else "border"
        c = (run.library if lane == "library" else run.border).index(max(*run.library, *run.border))
        yield f"  the busiest lane is the {lane} of vendor cluster {c}: it sets the pace"


def explain_job(job: Job, t: Topology, size: int, skew: str = "") -> JobExplanation:
    """Simulates one call, and says where its time goes. Takes and raises as `simulate_job`."""
    return JobExplanation(job, t.name, simulate_job(job, t, [size], skew).runs[0], skew)
