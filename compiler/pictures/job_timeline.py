"""job_timeline: the picture of a simulated call of a Job: two lanes for each vendor cluster.

In the upper lane are the calls of its library, in the lower one what it sends over its border.
Of very many tasks neighbours of one kind are one bar.
"""

from __future__ import annotations

from dataclasses import dataclass

from hccc.base.diagnostics import fail
from hccc.ir import text
from hccc.ir.job import Job, JobOp
from hccc.ir.topology import Topology
from hccc.pictures import palette
from hccc.pictures.canvas import SMALL, Picture, Sheet, settings, width_around, width_of
from hccc.pictures.legend import LegendEntry, draw_legend
from hccc.predict.jobs import JobRun, simulate_job

LANE, WIDE, CLOSE = 0.26, 9.0, 0.004  # inches: a lane, all time, the least gap that is drawn
_KINDS = {
    "within: copy": palette.COPY,
    "within: reduce": palette.REDUCE,
    "over the border: copy": palette.CARRIED,
    "over the border: reduce": palette.KINDS[3],
}


@dataclass(slots=True)
class _Bar:
    kind: str
    begin: float
    end: float
    tip: str
    tasks: int = 1


@settings()
def job_timeline(job: Job, run: JobRun, cluster: str) -> Picture:
    """Draws when each lane does what. O(tasks log tasks)."""
    said = job.clusters.texts()
    labels = [name for k in range(len(said)) for name in (f"{k}: library", f"{k}: border")]
    left = 0.45 + max(width_of(label, SMALL) for label in labels)
    head = f"{text.clean(job.name, 48)}: {text.size(run.size)} on {text.clean(cluster, 48)}"
    notes = [f"vendor cluster {k}: {x}" for k, x in enumerate(said[:8])]
    width = max(left + WIDE + 0.4, width_around(head, notes))
    height = 1.75 + LANE * len(labels) + 0.17 * len(notes)
    sheet = Sheet(width, height)
    says = f"{text.time(run.time)}, {text.count(run.batches, 'micro-batch')}"
    sheet.heading(head, says)
    draw_legend(sheet, [[LegendEntry(k, fill) for k, fill in _KINDS.items()]], height - 0.8)
    top, scale = height - 1.05, WIDE / max(run.time, 1e-9)
    for row, label in enumerate(labels):
        y = top - LANE * (row + 1)
        if row // 2 % 2 == 0:
            sheet.box((left, y, WIDE, LANE), palette.STRIPE, "none", round=0, line=0)
        sheet.text(left - 0.1, y + LANE / 2, label, ha="right")
        for bar in _bars(job, run, row, CLOSE / scale):
            wide = max((bar.end - bar.begin) * scale, CLOSE)
            at = (left + bar.begin * scale, y + 0.04, wide, LANE - 0.08)
            sheet.box(at, _KINDS[bar.kind], "none", round=0, line=0, tip=_tip(bar))
    bottom = top - LANE * len(labels) - 0.15
    for k in range(5):
        sheet.text(left + WIDE * k / 4, bottom, text.time(run.time * k / 4), color=palette.FAINT)
    sheet.notes(notes, 0.3)
    return sheet.picture("job-timeline", head, says + ".")


def _bars(job: Job, run: JobRun, row: int, gap: float) -> list[_Bar]:
    """Returns the bars of a lane; tasks of one kind that are less than `gap` µs apart are one."""
    found: list[_Bar] = []
    for task in sorted(run.tasks, key=lambda task: task.begin):
        op, src = (int(job.steps[name][task.step]) for name in ("op", "src"))
        if task.end <= task.begin or 2 * src + JobOp(op).crosses != row:
            continue
        where = "over the border" if JobOp(op).crosses else "within"
        kind = f"{where}: {'reduce' if JobOp(op).reduces else 'copy'}"
        if found and found[-1].kind == kind and task.begin <= found[-1].end + gap:
            found[-1].end = max(found[-1].end, task.end)
            found[-1].tasks += 1
            continue
        tip = f"{job.describe(task.step)}, micro-batch {task.batch}"
        found.append(_Bar(kind, task.begin, task.end, tip))
    return found


def _tip(bar: _Bar) -> str:
    more = f" and {bar.tasks - 1} more" if bar.tasks > 1 else ""
    return f"{bar.tip}{more}: {text.time(bar.begin)} to {text.time(bar.end)}"


def draw_job(job: Job, t: Topology, what: str | None, size: int) -> Picture:
    """Simulates a call and draws its timeline. Raises UserError E433 for another picture."""
    if what not in (None, "timeline"):
        raise fail("E433", f"no {what}: of a job there is one picture", help="its timeline")
    return job_timeline(job, simulate_job(job, t, [size]).runs[0], t.name)
