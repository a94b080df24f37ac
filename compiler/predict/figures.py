"""figures: the figures of simulated calls, and the tables that show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hccc.ir import text as words
from hccc.predict.nccl.rows import LibraryRow
from hccc.sim import critical, usage
from hccc.sim.simulate import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """One line: the figures of a Run. Shares are 0 to 1."""

    name: str
    size: int
    time: float
    algbw: float
    busbw: float
    micro_batch: int
    micro_batches: int
    utilisation: float
    links: list[usage.LinkUsage]
    blocks: usage.BlockUsage
    critical_path: dict[str, float]
    plan: str = ""


def figures_of(name: str, run: Run) -> Figures:
    path = critical.breakdown(run, critical.critical_path(run))
    return Figures(
        name,
        run.size,
        run.time,
        run.algbw,
        run.busbw,
        round(run.payload),
        run.batches,
        usage.utilisation(run),
        usage.links(run),
        usage.blocks(run),
        path,
        run.machine.plan.name,
    )


def plans(results: Sequence[Figures]) -> Iterator[str]:
    """Yields the plan that each size runs, if there are several."""
    names = [figures.plan for figures in results]
    if len(set(names)) > 1:
        first = [k for k, name in enumerate(names) if not k or names[k - 1] != name]
        told = ", ".join(f"{names[k]} from {words.size(results[k].size)}" for k in first)
        yield f"# plans: {told}"


_HEAD = (
    (
        "size",
        "time",
        "algbw",
        "busbw",
        "micro-batch",
        "links",
        "busiest",
        "",
        "blocks",
        "busy",
        "idle",
        "most",
    ),
    ("(B)", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "(%)", "", "/rank", "(%)", "(%)", "idle (%)"),
)
_LINE = "{:>13}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>7} {:<7} {:>6}  {:>6}  {:>6}  {:>8}"


def table(rows: Sequence[Sequence[Figures]]) -> Iterator[str]:
    for head in _HEAD:
        yield ("#" + _LINE.format(*head)[1:]).rstrip()
    for (f,) in rows:
        top = f.links[0] if f.links else usage.LinkUsage("none", 0, 0.0, 0.0, "")
        cells = (
            f.size,
            _us(f.time),
            f"{f.algbw:.2f}",
            f"{f.busbw:.2f}",
            f.micro_batch,
        )
        shares = (_share(f.utilisation), _share(top.most), top.kind)
        b = f.blocks
        idle = (b.per_rank, _share(b.busy), _share(b.idle), _share(b.most_idle))
        yield _LINE.format(*cells, *shares, *idle)


_VERSUS = "{:>13}  {:<15}  {:>10}  {:>7}  {:>7}  {:>11}  {:>6}  {:>6}  {:>6}  {:>8}  {:>9}"
_VERSUS_HEAD = (
    (
        "size",
        "as",
        "time",
        "algbw",
        "busbw",
        "micro-batch",
        "links",
        "blocks",
        "idle",
        "most",
        "of hccc's",
    ),
    ("(B)", "", "(us)", "(GB/s)", "(GB/s)", "(B)", "(%)", "/rank", "(%)", "idle (%)", "time"),
)


def versus(
    rows: Sequence[Sequence[Figures]], library: Sequence[Sequence[LibraryRow]]
) -> Iterator[str]:
    """Yields a line for each size and runtime: time, bandwidth, and the time as a multiple of
    hccc's.

    The lines of a library are second, with its choice.
    """
    for head in _VERSUS_HEAD:
        yield ("#" + _VERSUS.format(*head)[1:]).rstrip()
    for row, beside in zip(rows, library, strict=True):
        for f in row:
            cells = (
                f.name,
                _us(f.time),
                f"{f.algbw:.2f}",
                f"{f.busbw:.2f}",
                f.micro_batch,
            )
            shares = (_share(f.utilisation), f.blocks.per_rank)
            idle = (_share(f.blocks.idle), _share(f.blocks.most_idle))
            times = f.time / row[0].time if row[0].time else 1.0
            size = f.size if f is row[0] else ""
            yield _VERSUS.format(size, *cells, *shares, *idle, f"{times:.2f}×")
            if f is row[0]:
                yield from (_of_library(chosen, f.time) for chosen in beside)


def _of_library(row: LibraryRow, ours: float) -> str:
    cells = (_us(row.time), f"{row.algbw:.2f}", f"{row.busbw:.2f}")
    times = row.time / ours if ours else 1.0
    line = _VERSUS.format("", row.name, *cells, "", "", "", "", "", f"{times:.2f}×")
    return f"{line}  {row.choice}"


def critical_lines(run: Run) -> tuple[str, ...]:
    path = critical.critical_path(run)
    parts = critical.shares(critical.breakdown(run, path))
    shares = ", ".join(f"{p.name} {_share(p.share)} %" for p in parts if p.counts)
    head = f"# critical path of {run.size:,} bytes: {words.count(len(path), 'step')}"
    return (f"{head}; {shares}" if shares else head,)


def _share(share: float) -> str:
    return words.plain(100 * share, 1)


def _us(time: float) -> str:
    return words.plain(time, 2 if time < 1e6 else 0)
