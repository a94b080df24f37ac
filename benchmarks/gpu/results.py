"""What was measured, as a page to read and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.gpu.communicators import SharedResult
from benchmarks.gpu.constants import ConstantTime
from benchmarks.gpu.timing import Sample


@dataclass(frozen=True, slots=True)
class Check:
    """One example on the device, compared with the CPU; `wrong`: elements, None: not run."""

    name: str
    bytes: tuple[int, ...]
    wrong: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CopyPoint:
    """Plain copies of one size in device memory: bytes read and written, GB/s."""

    bytes: int
    time: Sample
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One plan at one size, micro-batch and window (0: all).

    Bytes; `issued` and `floor` as in kernel-protocol §2; `same`: both kernels' results are equal in
    every bit.
    """

    name: str
    fuse: str
    thread_blocks: int
    channels: int
    size: int
    micro_batch: int
    window: int
    generated: Sample
    interpreted: Sample
    issued: float
    floor: float
    same: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One plan at one size and dtype, with the default micro-batch.

    times: by KernelKind; host_us: what one call of the C launcher takes the host, 0
    where there is none.
    """

    name: str
    transport: str
    dtype: str
    thread_blocks: int
    channels: int
    size: int
    times: dict[str, Sample]
    host_us: float
    same: bool


@dataclass(frozen=True, slots=True)
class BodyPoint:
    """A primitive for each rank, by so many thread blocks: bytes of a rank's buffer, time, and
    the bytes that all read and write."""

    name: str
    dtype: str
    blocks: int
    size: int
    time: Sample
    issued: float

    @property
    def bandwidth(self) -> float:
        """GB/s of all blocks."""
        return self.issued / self.time.median * 1e-3


@dataclass(frozen=True, slots=True)
class ShortPoint:
    """Short calls of one size: times by plan, and whether each result is the sum to the bit."""

    dtype: str
    size: int
    times: dict[str, Sample]
    right: bool


@dataclass(frozen=True, slots=True)
class LibraryPoint:
    """A vendor's library at one size: NCCL with one rank, which copies."""

    name: str
    dtype: str
    size: int
    time: Sample


@dataclass(frozen=True, slots=True)
class ClientTest:
    """A test of a client that nobody here wrote, or of a command."""

    name: str
    right: bool


@dataclass(slots=True)
class GpuResults:
    """Everything measured so far; saved again and again."""

    date: str
    command: str
    facts: dict[str, str]
    checks: list[Check] = field(default_factory=list)
    copies: list[CopyPoint] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    constants: list[ConstantTime] = field(default_factory=list)
    short: list[ShortPoint] = field(default_factory=list)
    bodies: list[BodyPoint] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    libraries: list[LibraryPoint] = field(default_factory=list)
    shared: list[SharedResult] = field(default_factory=list)
    clients: list[ClientTest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bandwidth(self) -> float:
        """Returns the GB/s of the largest plain copy; 0 before there is one."""
        return max(self.copies, key=lambda c: c.bytes).bandwidth if self.copies else 0.0

    @property
    def failures(self) -> int:
        """Counts the checks and cells with wrong results."""
        differ = sum(not c.same for c in self.cells) + sum(not p.same for p in self.points)
        differ += sum(not s.right for s in self.shared) + sum(not s.right for s in self.short)
        differ += sum(not c.right for c in self.clients)
        return sum(bool(c.wrong) for c in self.checks) + differ

    def save(self, folder: Path) -> list[Path]:
        """Writes `<date>-<device>.md` and `.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.facts["device"].split(",")[0]).strip("-")
        stem = f"{self.date[:10]}-{device}"
        paths = [folder / f"{stem}.md", folder / f"{stem}.json"]
        paths[0].write_text(page(self), encoding="utf-8")
        paths[1].write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        return paths


LEGEND = """Times are medians in µs (quartiles are in the JSON); interp. / gen. above 1 is what
interpreting costs. algbw is the size by the generated time; issued, what the plan's operands read
and write by the generated time; of bound, how far that is of the largest plain copy's bandwidth
(above 100 %: the caches served some); issued / floor, how much more that is than reading every
input and writing every output once."""


def page(r: GpuResults) -> str:
    """Writes the results in Markdown."""
    parts = [
        f"# Generated and interpreted kernels, {r.date}",
        "\n".join([*(f"- {k}: {v}" for k, v in r.facts.items()), f"- command: `{r.command}`"]),
        _checks(r.checks),
        "Plain copies in device memory, reads and writes counted:",
        _table(("bytes", "µs", "GB/s"), [_copy(c) for c in r.copies]),
        *_constants(r.constants),
        *_short(r.short),
        *_bodies(r.bodies),
        LEGEND,
        *(_section(r, size) for size in sorted({c.size for c in r.cells})),
        *_sweeps(r),
        *_shared(r),
        *_clients(r.clients),
        "\n".join(f"- {n}" for n in r.notes),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _checks(checks: Sequence[Check]) -> str:
    ran = [c for c in checks if c.wrong is not None]
    bad = [c for c in ran if c.wrong]
    head = (
        f"{len(ran)} programs checked, in place and out of place, against the definition of their "
        f"collective and, on a GPU, against the CPU's bits: {len(bad)} wrong."
    )
    lines = [f"- {c.name}: {c.wrong} wrong elements" for c in bad]
    lines += [f"- {c.name}: not run, {c.note}" for c in checks if c.wrong is None]
    return "\n".join([head, *([""] if lines else []), *lines])


def _copy(c: CopyPoint) -> tuple[str, ...]:
    return (f"{c.bytes:,}", f"{c.time.median:.1f}", f"{c.bandwidth:.0f}")


def _section(r: GpuResults, size: int) -> str:
    heads = (
        "collective",
        "fuse",
        "blocks × channels",
        "micro-batch",
        "window",
        "generated",
        "interpreted",
        "interp. / gen.",
        "algbw GB/s",
        "issued GB/s",
        "of bound",
        "issued / floor",
        "same bits",
    )
    rows = [_cell(c, r.bandwidth) for c in r.cells if c.size == size]
    return f"## {binary(size)} a rank\n\n" + _table(heads, rows)


def _cell(c: Cell, bandwidth: float) -> tuple[str, ...]:
    seconds = c.generated.median * 1e-6
    issued = c.issued / seconds / 1e9
    return (
        c.name,
        c.fuse,
        f"{c.thread_blocks} × {c.channels}",
        binary(c.micro_batch),
        str(c.window or "all"),
        f"{c.generated.median:.1f}",
        f"{c.interpreted.median:.1f}",
        f"{c.interpreted.median / c.generated.median:.3f}",
        f"{c.size / seconds / 1e9:.1f}",
        f"{issued:.0f}",
        f"{100 * issued / bandwidth:.0f} %" if bandwidth else "",
        f"{c.issued / c.floor:.2f}",
        "yes" if c.same else "NO",
    )


def _constants(found: Sequence[ConstantTime]) -> list[str]:
    """Writes the constants of estimates."""
    if not found:
        return []
    rows = [
        (c.what, *(f"{t:.3f}" for t in (c.time.median, c.time.low, c.time.high))) for c in found
    ]
    said = "## Constants\n\nOf one GPU: what crosses links to others takes longer."
    return [f"{said}\n\n{_table(('', 'µs', 'quartile', 'quartile'), rows)}"]


def _short(points: Sequence[ShortPoint]) -> list[str]:
    """Writes what short calls take by packets and by counters, a table for each dtype."""
    parts = []
    for dtype in dict.fromkeys(p.dtype for p in points):
        of = [p for p in points if p.dtype == dtype]
        arms = list(dict.fromkeys(arm for p in of for arm in p.times))
        rows = [
            (
                binary(p.size),
                *(f"{p.times[arm].median:.2f}" if arm in p.times else "" for arm in arms),
                "yes" if p.right else "NO",
            )
            for p in of
        ]
        said = f"## Short calls, {dtype}\n\nµs of a launch, ranks on one device."
        parts.append(f"{said}\n\n{_table(('a rank', *arms, 'right'), rows)}")
    return parts


def _bodies(points: Sequence[BodyPoint]) -> list[str]:
    """Writes what thread blocks move, by their number: where it no longer grows is the knee."""
    if not points:
        return []
    rows = [
        (
            p.name,
            p.dtype,
            str(p.blocks),
            f"{p.time.median:.1f}",
            f"{p.bandwidth:.0f}",
            f"{p.bandwidth / p.blocks:.1f}",
        )
        for p in points
    ]
    heads = ("sources to destinations", "dtype", "blocks", "µs", "GB/s", "GB/s a block")
    said = f"## Bodies\n\nReads and writes counted; {binary(points[0].size)} a rank."
    return [f"{said}\n\n{_table(heads, rows)}"]


def _sweeps(r: GpuResults) -> list[str]:
    """Writes a table for each program and dtype that was measured at many sizes."""
    parts = []
    for name, dtype in sorted({(p.name, p.dtype) for p in r.points}):
        points = [p for p in r.points if (p.name, p.dtype) == (name, dtype)]
        kinds = list(dict.fromkeys(kind for p in points for kind in p.times))
        heads = (
            "a rank",
            "transport",
            "blocks × channels",
            *kinds,
            "algbw GB/s",
            "launcher's host µs",
        )
        rows = [_point(p, kinds) for p in sorted(points, key=lambda p: p.size)]
        parts.append(f"## {name}, {dtype}, all sizes\n\n" + _table((*heads, "same bits"), rows))
    if r.libraries:
        heads = ("library", "dtype", "a rank", "µs")
        rows = [(x.name, x.dtype, binary(x.size), f"{x.time.median:.1f}") for x in r.libraries]
        parts.append("## Libraries\n\n" + _table(heads, rows))
    return parts


def _shared(r: GpuResults) -> list[str]:
    if not r.shared:
        return []
    rows = [
        (
            s.ranks,
            binary(s.size) if s.size else "",
            f"{s.time:.1f}" if s.time else "",
            f"{s.size / s.time * 1e-3:.2f}" if s.time else "",
            "yes" if s.right else "NO",
            s.note,
        )
        for s in r.shared
    ]
    heads = ("two ranks on the device", "a rank", "µs", "algbw GB/s", "right", "")
    return ["## Ranks of a communicator\n\n" + _table(heads, rows)]


def _clients(tests: Sequence[ClientTest]) -> list[str]:
    if not tests:
        return []
    rows = [(t.name, "yes" if t.right else "NO") for t in tests]
    return ["## Clients\n\n" + _table(("test", "passed"), rows)]


def _point(p: Point, kinds: Sequence[str]) -> tuple[str, ...]:
    times = [f"{p.times[kind].median:.1f}" if kind in p.times else "" for kind in kinds]
    return (
        binary(p.size),
        p.transport,
        f"{p.thread_blocks} × {p.channels}",
        *times,
        f"{p.size / next(iter(p.times.values())).median * 1e-3:.2f}",
        f"{p.host_us:.1f}" if p.host_us else "",
        "yes" if p.same else "NO",
    )


def binary(size: int) -> str:
    """Writes a size as `256 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
