"""tables: measurements as nccl-tests prints them, and as its `-J` reports them.

Column widths, rounding and names are those of nccl-tests' `src/util.cu`, so that whatever reads
its output reads this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hccc.base.dtypes import NCCL_NAMES
from hccc.base.files.writing import write_whole
from hccc.cli import report
from hccc.cli.progress import say
from hccc.driver.facts import spans, title
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import Collective
from hccc.ir.job import Job
from hccc.runtime.measure.perf import PerfRow, PerfTiming, SizeSchedule
from hccc.runtime.network import RankNetwork

JSON_VERSION = 3  # of nccl-tests' report
_HALF = "  {:>7}  {:>6}  {:>6}  {:>6}"
_COLUMNS = ("time", "algbw", "busbw", "#wrong")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")


# The names of the plans of a row's halves; None: of a plan alone, or none.
Plans = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a table is of. about: its first lines; facts: of its JSON's `config`; plans: says of
    which plans a row is, where there are several."""

    about: tuple[str, ...]
    facts: dict[str, object]
    plans: Callable[[PerfRow], Plans] | None = None


def of_library(of: Catalogue, device: str, network: RankNetwork | None = None) -> Measured:
    """Describes a library of plans."""
    plan = of.plans[0]
    made = of.provenance or plan.provenance
    about = [
        f"# {title(of)}, on {device}",
        *([f"# {_said(network)}"] if network else []),
        *([f"# compiled for {made.cluster.name}"] if made and made.cluster else []),
        *([f"# {plan.unusual_sums}"] if plan.unusual_sums else []),
    ]
    if not of.alone:  # a line for each plan: the sizes that it serves
        about += [f"# {one.name} ({one.source}): {spans(of, k)}" for k, one in enumerate(of.plans)]
    facts = {
        **_config(of.name, of.collective, device),
        **({"accumulate": plan.accumulate.stated} if plan.unusual_sums else {}),
        **({"network": _facts(network)} if network else {}),
    }

    def plans(row: PerfRow) -> Plans:
        out, inside = (
            of.plans[of.pick(row.size, in_place).plan].name if half else None
            for in_place, half in ((False, row.out_of_place), (True, row.in_place))
        )
        return out, inside

    return Measured(tuple(about), facts, None if of.alone else plans)


def of_job(job: Job, device: str, vendors: Sequence[tuple[str, str]]) -> Measured:
    """Describes a job. vendors: whose library serves each rank; empty where ranks say it."""
    about = [f"# {job.name}: {job.collective.title}, a job, on {device}"]
    for c, text in enumerate(job.clusters.texts()):
        named = f"; library: {vendors[job.clusters.members(c)[0]][0]}" if vendors else ""
        about.append(f"# vendor cluster {c}: {text}{named}")
    facts = _config(job.name, job.collective, device)
    facts["vendor_clusters"] = job.clusters.texts()
    if vendors:
        facts["vendors"] = [name for name, _ in vendors]
    return Measured(tuple(about), facts)


def _config(name: str, c: Collective, device: str) -> dict[str, object]:
    return {"name": name, "collective": c.op.value, "ranks": c.n_ranks, "device": device}


class Table:
    """Prints rows as they come, or collects them for JSON."""

    def __init__(self, measured: Measured, schedule: SizeSchedule, as_json: bool) -> None:
        self._measured, self._schedule, self._as_json = measured, schedule, as_json
        self._rows: list[PerfRow] = []
        if not as_json:
            say("\n".join(self._header()))

    @property
    def wrong(self) -> int:
        """Wrong elements of all rows."""
        return sum(row.wrong for row in self._rows)

    def add(self, row: PerfRow) -> None:
        """Prints one more row."""
        self._rows.append(row)
        if not self._as_json:
            say(line(row) + self._picked(row))

    def finish(self, file: Path | None = None) -> None:
        """Prints the footer; or everything, as JSON. file: also gets the JSON."""
        if file is not None:
            text = report.dumps(self._json()) + "\n"
            write_whole(file, lambda opened: opened.write(text))
        if self._as_json:
            report.as_json(self._json())
            return
        print(f"# {'Out of bounds values':<20} : {self.wrong} {'FAILED' if self.wrong else 'OK'}")
        print(f"# {'Avg bus bandwidth':<20} : {self._average():g} ")
        print("#")

    def _picked(self, row: PerfRow) -> str:
        """Returns the names of the plans that a row is of, out of place and in place."""
        names = [name for name in self._plans(row) if name]
        return f"  {'/'.join(dict.fromkeys(names))}" if names else ""

    def _plans(self, row: PerfRow) -> Plans:
        return self._measured.plans(row) if self._measured.plans else (None, None)

    def _average(self) -> float:
        halves = [half.busbw for row in self._rows for half in row.halves]
        return sum(halves) / len(halves) if halves else 0.0

    def _header(self) -> list[str]:
        s = self._schedule
        step = f"{s.factor:g}(factor)" if s.factor else f"{s.step}(bytes)"
        name = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
        blank = name.format("", "", "", "", "")
        return [
            *self._measured.about,
            f"# minBytes {s.smallest} maxBytes {s.largest} step: {step} warmup iters: {s.warmups} "
            f"iters: {s.launches} validation: {int(s.check)}",
            "#",
            f"{blank}           out-of-place                       in-place          ",
            name.format("size", "count", "type", "redop", "root")
            + _HALF.format(*_COLUMNS) * 2
            + ("  plan" if self._measured.plans else ""),
            name.format("(B)", "(elements)", "", "", "") + _HALF.format(*_UNITS) * 2,
        ]

    def _json(self) -> dict[str, object]:
        s = self._schedule
        return {
            "version": JSON_VERSION,
            "config": {
                **self._measured.facts,
                "minimum_bytes": s.smallest,
                "maximum_bytes": s.largest,
                **({"step_factor": s.factor} if s.factor else {"step_bytes": s.step}),
                "warmup_iters": s.warmups,
                "iterations": s.launches,
                "validation": int(s.check),
            },
            "results": [_row_json(row, self._plans(row)) for row in self._rows],
            "out_of_bounds": {"count": self.wrong, "okay": self.wrong == 0},
            "average_bus_bandwidth": {"bandwidth": self._average(), "okay": "unchecked"},
        }


def line(row: PerfRow) -> str:
    """Returns one row of the table."""
    kind = NCCL_NAMES[row.dtype]
    start = f"{row.size:>12}  {row.count:>12}  {kind:>8}  {row.redop:>6}  {row.root:>6}"
    return start + _half(row.out_of_place) + _half(row.in_place)


def _half(half: PerfTiming | None) -> str:
    if half is None:
        return _HALF.format("N/A", "N/A", "N/A", "N/A")
    wrong = "N/A" if half.wrong is None else f"{half.wrong:g}"
    return _HALF.format(_fit(half.time, 7), _fit(half.algbw, 6), _fit(half.busbw, 6), wrong)


def _fit(value: float, width: int) -> str:
    """Returns a number with as many digits as fit, like nccl-tests' getFloatStr."""
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:.{1 if width >= 7 else 0}e}"


def _row_json(row: PerfRow, plans: Plans) -> dict[str, object]:
    return {
        "size": row.size,
        "count": row.count,
        "type": NCCL_NAMES[row.dtype],
        "redop": row.redop,
        "root": row.root,
        "out_of_place": _half_json(row.out_of_place, plans[0]),
        "in_place": _half_json(row.in_place, plans[1]),
    }


def _half_json(half: PerfTiming | None, plan: str | None) -> dict[str, object] | None:
    if half is None:
        return None
    return {
        **({"plan": plan} if plan else {}),
        "time": half.time,
        "alg_bw": half.algbw,
        "bus_bw": half.busbw,
        "nwrong": half.wrong,
    }


def _facts(network: RankNetwork) -> dict[str, float]:
    """Returns a network in figures; 0 GB/s is no limit."""
    return {
        "memory_domains": len(set(network.domain)),
        "nics": len(set(network.nic)),
        "nic_gb_per_s": network.wire.bandwidth,
        "latency_us": network.wire.latency,
    }


def _said(network: RankNetwork) -> str:
    """Returns `network: 4 memory domains, 32 NICs, each 12.5 GB/s, 5 us`."""
    domains, nics, bandwidth, latency = _facts(network).values()
    speed = f"each {bandwidth:g} GB/s" if bandwidth else "no limit"
    return f"network: {domains} memory domains, {nics} NICs, {speed}, {latency:g} us"
