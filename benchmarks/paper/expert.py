"""ResCCL Fig. 6, 8 and 11: speed-ups of the expert algorithms over NCCL and MSCCL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.paper.backends import PaperBench, PaperCase
from benchmarks.paper.reasons import ceiling, limit, lost
from benchmarks.paper.side_by_side import FigureRow, FigureTable, human, span


@dataclass(frozen=True, slots=True)
class Claim:
    """A published range: its words, the most it says, and whether it says so of large calls."""

    op: str
    clusters: tuple[str, ...]
    over: str
    words: str
    most: float
    large: bool = False


def _a100(*numbers: int) -> tuple[str, ...]:
    return tuple(f"resccl-topo{n}" for n in numbers)


V100 = ("resccl-v100-topo2", "resccl-v100-topo4")
FIGURES: dict[str, tuple[str, tuple[Claim, ...]]] = {
    "fig6": (
        "Fig. 6: expert algorithms on A100, 8 GPUs a server",
        (
            Claim("AllGather", _a100(2), "NCCL", "1.28–2.2×", 2.2),
            Claim("AllGather", _a100(2), "MSCCL", "1.12–1.6×", 1.6),
            Claim(
                "AllGather", _a100(4), "NCCL", "1.38× and more from 32 MB, 1.6× at 4 GB", 1.6, True
            ),
            Claim("AllGather", _a100(4), "MSCCL", "to 1.4×", 1.4),
            Claim("AllReduce", _a100(2, 4), "NCCL", "1.07–2.5×", 2.5),
            Claim("AllReduce", _a100(2, 4), "MSCCL", "1.11–2.5×; Topo4 0.92× below 16 MB", 2.5),
        ),
    ),
    "fig8": (
        "Fig. 8: expert algorithms on A100, 4 GPUs a server",
        (
            Claim("AllGather", _a100(1, 3), "NCCL", "1.6–2.3×", 2.3),
            Claim("AllGather", _a100(1, 3), "MSCCL", "1.07–1.23×", 1.23),
            Claim("AllReduce", _a100(1, 3), "NCCL", "to 3.7×", 3.7),
            Claim("AllReduce", _a100(1, 3), "MSCCL", "to 2.4×", 2.4),
        ),
    ),
    "fig11": (
        "Fig. 11: expert algorithms on V100",
        (
            Claim("AllGather", V100, "NCCL", "2.1–3.7×", 3.7),
            Claim("AllGather", V100, "MSCCL", "1.6–2.7× small, 1.06–1.18× large", 2.7),
            Claim("ReduceScatter", V100, "NCCL", "1.9–4.2×", 4.2),
            Claim("ReduceScatter", V100, "MSCCL", "to 1.30× small, 1.05–1.09× large", 1.30),
            Claim("AllReduce", V100, "NCCL", "2.3–3.9×", 3.9),
            Claim("AllReduce", V100, "MSCCL", "1.10–1.68×", 1.68),
        ),
    ),
}
ROUNDING = 0.05  # of a published speed-up
RIVALS = {"NCCL": "NCCL ring", "MSCCL": "stage-level"}
NOTE = """Times of the other over times of ours, least to most over {first}–{last}; in every
column the other has micro-batches of {micro}. *ResCCL*: as ResCCL runs the algorithm, with the
same. *hccc*: as hccc does by default, which cuts small messages finer. *hccc, best*: with the
best micro-batch for each size. *any schedule*: the other's time over the bound that no schedule
beats (`synth/bounds/bound`): more is impossible on this cluster, whatever the algorithm."""
PLACES = """ The paper does not say how many servers of V100 there are nor what joins the GPUs
inside. Ours: 2 and 4 servers of 8, inside as HeteCCL's, where a full mesh crosses UPI and PCIe.
It has no size where "small" ends."""


def table(bench: PaperBench, name: str) -> FigureTable:
    """Makes the table of one figure."""
    title, claims = FIGURES[name]
    s = bench.setting
    note = NOTE.format(first=human(s.sizes[0]), last=human(s.sizes[-1]), micro=human(s.micro_batch))
    note += PLACES if name == "fig11" else ""
    columns = (
        "collective",
        "topology",
        "over",
        "published",
        "ResCCL",
        "hccc",
        "hccc, best",
        "any schedule",
    )
    rows = [_row(bench, claim, cluster) for claim in claims for cluster in claim.clusters]
    return FigureTable(name, title, note, columns, tuple(rows))


def _row(bench: PaperBench, claim: Claim, cluster: str) -> FigureRow:
    case, rival = PaperCase("HM", claim.op, cluster), RIVALS[claim.over]
    sizes = bench.setting.sizes
    theirs = [bench.run(case, rival, size) for size in sizes]
    over = partial(bench.times_over, case, theirs)
    limits = bench.limits(case)
    found = {"ResCCL": over("ResCCL"), "hccc": over("hccc"), "best": over("hccc", free=True)}
    found["any"] = [ceiling(run, limits) for run in theirs]
    place = cluster.removeprefix("resccl-")
    cells = (claim.op, place, claim.over, claim.words, *(span(v) for v in found.values()))
    facts = {"sizes": sizes, "speed-ups": found, "published most": claim.most}
    return FigureRow(cells, facts, _why(bench, case, claim, found))


def _why(bench: PaperBench, case: PaperCase, claim: Claim, found: dict[str, list[float]]) -> str:
    """Says why ours differs at the largest size, where latencies count least."""
    size, name = bench.setting.sizes[-1], RIVALS[claim.over]
    ours, limits = bench.run(case, "ResCCL", size), bench.limits(case)
    theirs = bench.run(case, name, size)
    parts = [f"{name}: {limit(theirs)}", f"ResCCL: {limit(ours)}, {lost(ours, limits)}"]
    said, here = claim.most - ROUNDING, found["any"]
    gains = f"no schedule gains {claim.most:g}× over this {name}"
    if said > max(here) and said > _most_anywhere(bench, claim):
        parts.append(f"{gains}: theirs was slower, or their servers differ from these")
    elif said > max(here):
        parts.append(f"{gains} on this topology: it is another's")
    elif said > here[-1]:
        large = f"on large calls ({here[-1]:.2f}× at {human(size)})"
        small = "" if claim.large else ", or it is of smaller ones"
        parts.append(f"{gains} {large}: theirs was slower{small}")
    return "; ".join(parts)


def _most_anywhere(bench: PaperBench, claim: Claim) -> float:
    """Returns what any schedule gains over the other, on all topologies that a range is about."""
    cases = [PaperCase("HM", claim.op, cluster) for cluster in claim.clusters]
    sizes, name = bench.setting.sizes, RIVALS[claim.over]
    return max(ceiling(bench.run(c, name, size), bench.limits(c)) for c in cases for size in sizes)
