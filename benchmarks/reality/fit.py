"""Fits compiler/predict/nccl/calibration.toml to the published tables.

    python -m benchmarks.reality.fit [--write]
    python -m benchmarks.reality.fit --leave-one-out [--jobs 2]

Least squares of the logarithm of predicted over measured, robust against outliers; every table
weighs as the square root of its rows. Figures that a class of machines or a network has to itself
are drawn a little to those of the others, the rest to what they are in the file. Needs scipy.

--leave-one-out predicts every machine by figures that are fitted without it: without its GPU on its
network, and without its GPU within a node, whoever measured it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from benchmarks.reality.tables import CLASSES, PublishedTable, size_class, tables
from hccc.predict.nccl.calibration import calibration
from hccc.predict.nccl.model import PreparedCalls, prepare

FILE = Path(__file__).parents[2] / "compiler/predict/nccl/calibration.toml"
PULL = 0.1
STEP = 1e-4  # of the logarithm of a figure, for derivatives
# Not fitted: what few tables say anything of, and estimates; nor is [link], the device library's.
FIXED = {"far", "allreduce", "congestion", "slice", "p2p_peer", "hop_AMD", "sockets"}
ESTIMATED = {
    ("hop", "Ethernet"),
    ("base", "P2P"),
    ("simple", "AMD"),
}
WHOLE = {"net", "net_ll128"}  # shares that stay below 1
DRAWN = 0.6
ALIKE = {"step", "hop", "ll", "ll128", "simple", "net"}  # whose figures are drawn to each other
SOME = {"rendezvous", "net_ll"}  # of some networks, which must have been seen
NEUTRAL = {  # of figures for which nothing speaks
    ("other", "p2p_launch"): 0.0,
    ("step_factor", "LL128AMD"): 1.0,
}
RDMA = ("InfiniBand", "RoCE", "Slingshot")
FAMILIES = {  # of networks: RDMA, clouds' own transports, and by TCP
    "hop": (RDMA, ("EFA", "EFA1", "TCPXO"), ("TCPX",)),
}
Key = tuple[str, str]
Figures = dict[str, dict[str, float]]


class _Seen(dict[str, float]):
    """A section that notes which of its figures are read."""

    def __init__(self, section: str, values: Mapping[str, float], read: set[Key]) -> None:
        super().__init__(values)
        self.section, self.read = section, read

    def __getitem__(self, key: str) -> float:
        self.read.add((self.section, key))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            self.read.add((self.section, key))
        return super().get(key, default)


@cache
def counted() -> tuple[PublishedTable, ...]:
    """Returns the tables that count."""
    return tuple(t for t in tables() if not t.context)


@cache
def calls(t: PublishedTable) -> PreparedCalls:
    """Returns what the library does for a table's sizes."""
    return prepare(t.machine, t.op, t.sizes.tolist(), t.forced)


@cache
def reads(t: PublishedTable) -> frozenset[Key]:
    """Returns the figures that a table's prediction depends on."""
    read: set[Key] = set()
    figures: Figures = {s: dict(v) for s, v in calibration().items()}
    before = calls(t).times({s: _Seen(s, v, read) for s, v in figures.items()})
    found = set()
    for s, k in read:
        value = figures[s][k]
        figures[s][k] = 1.3 * value
        if (calls(t).times(figures) != before).any():
            found.add((s, k))
        figures[s][k] = value
    return frozenset(found)


class Fit:
    """Figures fitted to some tables. start: as in the file, or, of what no table reads, the mean of
    the others of its family."""

    def __init__(self, chosen: Iterable[PublishedTable]) -> None:
        self.tables = tuple(t for t in chosen if t.odd != 0)
        self.figures: Figures = {s: dict(v) for s, v in calibration().items()}
        read = frozenset[Key]().union(*(reads(t) for t in self.tables))
        for s in SOME:
            self.figures[s] = {k: v for k, v in self.figures[s].items() if (s, k) in read}
        for s, families in self._families().items():
            for family in families:
                known = [k for k in family if (s, k) in read] or [families[0][0]]
                known = known[:1] if family is RDMA else known
                mean = float(np.exp(np.mean(np.log([self.figures[s][k] for k in known]))))
                for k in family:
                    if (s, k) not in read and (s, k) not in ESTIMATED:
                        self.figures[s][k] = mean
        for s, k in NEUTRAL.keys() - read:
            self.figures[s][k] = NEUTRAL[s, k]
        self.keys = [
            (s, k)
            for s, v in self.figures.items()
            for k in v
            if k not in FIXED and s != "link" and (s, k) not in ESTIMATED and (s, k) in read
        ]
        self.start = np.log([self.figures[s][k] for s, k in self.keys])
        self.pull, self.target = self._pull()
        self.own = [[i for i, k in enumerate(self.keys) if k in reads(t)] for t in self.tables]

    def _families(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        return {s: FAMILIES.get(s, (tuple(self.figures[s]),)) for s in ALIKE}

    def _pull(self) -> tuple[Any, Any]:
        """Returns the linear map from figures to pulls, and what it is drawn to."""
        pull, target = PULL * np.eye(len(self.keys)), PULL * self.start
        for s, families in self._families().items():
            for family in families:
                rows = [i for i, (of, k) in enumerate(self.keys) if of == s and k in family]
                if len(rows) > 1:
                    share, weight = np.full(len(rows), 1 / len(rows)), DRAWN
                    if family is RDMA:
                        share, weight = np.eye(len(rows))[0], 1.5
                    pull[np.ix_(rows, rows)] = weight * (np.eye(len(rows)) - share)
                    target[rows] = 0
        return pull, target

    def with_values(self, x: Any) -> Figures:
        """Returns all figures, of which the fitted ones are exp(x)."""
        values = {s: dict(v) for s, v in self.figures.items()}
        for (s, k), value in zip(self.keys, np.exp(x), strict=True):
            values[s][k] = float(value)
        return values

    def _table(self, t: PublishedTable, values: Figures) -> Any:
        error = np.log(calls(t).times(values) / t.times) / len(t.times) ** 0.25
        return error if t.odd is None else np.where(t.sizes < t.odd, error, 0)

    def _pulled(self, x: Any) -> Any:
        return self.pull @ x - self.target

    def residuals(self, x: Any) -> Any:
        """Returns the pulls, and the weighed errors of every table."""
        values = self.with_values(x)
        return np.concatenate([self._pulled(x), *(self._table(t, values) for t in self.tables)])

    def jacobian(self, x: Any) -> Any:
        """Returns the derivatives of `residuals`; a table's are of the figures it depends on."""
        values, parts = self.with_values(x), [self.pull]
        changed = []
        for i in range(len(x)):
            other = x.copy()
            other[i] += STEP
            changed.append(self.with_values(other))
        for t, own in zip(self.tables, self.own, strict=True):
            part, here = np.zeros((len(t.times), len(x))), self._table(t, values)
            for i in own:
                part[:, i] = (self._table(t, changed[i]) - here) / STEP
            parts.append(part)
        return np.concatenate(parts)

    def solve(self, steps: int = 25) -> Figures:
        """Fits, and returns all figures."""
        shares = np.array([not WHOLE.isdisjoint({s, k}) for s, k in self.keys])
        high = np.where(shares, np.log(0.98), self.start + 1.6)
        best = least_squares(
            self.residuals,
            np.minimum(self.start, high - 1e-6),
            self.jacobian,
            loss="soft_l1",
            f_scale=0.15,
            max_nfev=steps,
            xtol=1e-4,
            ftol=1e-4,
            bounds=(self.start - 1.6, high),
        )
        self.cost = float(best.cost)
        return self.with_values(best.x)


def apart(t: PublishedTable, device: str, network: str) -> bool:
    """Tells whether a table says nothing of a machine: it is of another GPU, or of this GPU between
    nodes on another network."""
    return t.device != device or (t.nodes > 1 and str(t.machine.network) != network)


def without(machine: tuple[str, str]) -> list[tuple[str, Any]]:
    """Predicts a machine by figures fitted without it: each table's id, and predicted over
    measured, less 1."""
    values = Fit(t for t in counted() if apart(t, *machine)).solve(12)
    own = [t for t in counted() if (t.device, str(t.machine.network)) == machine]
    return [(t.id, calls(t).times(values) / t.times - 1) for t in own]


def alone(t: PublishedTable) -> bool:
    """Tells whether no other machine has the network of a table between nodes."""
    network = t.machine.network
    others = {x.device for x in counted() if x.nodes > 1 and x.machine.network is network}
    return t.nodes > 1 and others == {t.device}


def left_out(jobs: int) -> dict[str, Any]:
    """Predicts every machine by the others; returns the errors of each table, by its id."""
    machines = list(dict.fromkeys((t.device, str(t.machine.network)) for t in counted()))
    for t in counted():
        reads(t)  # once, for all processes
    with ProcessPoolExecutor(jobs) as pool:
        return dict(pair for pairs in pool.map(without, machines) for pair in pairs)


def kind_of(t: PublishedTable) -> str:
    """Returns the row of a table: what joins the GPUs of its machine."""
    return str(t.machine.network) if t.nodes > 1 else f"in a node, {t.machine.link}"


def report(found: Mapping[str, Any]) -> list[str]:
    """Writes the errors by class of sizes: of all, by collective, by network, by machine."""
    lines = ["| | " + " | ".join(name for _, name in CLASSES) + " |", "|---" * 4 + "|"]

    def row(name: str, chosen: list[PublishedTable]) -> None:
        if not chosen:
            return
        error = np.abs(np.concatenate([found[t.id] for t in chosen]))
        classes = np.concatenate([size_class(t.sizes) for t in chosen])
        cells = []
        for k in range(len(CLASSES)):
            e = error[classes == k]
            cells.append(
                f"{np.median(e):.0%}, {np.mean(e <= 0.3):.0%} of {len(e)}" if len(e) else ""
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    row("**all**", list(counted()))
    row("networks that others have", [t for t in counted() if not alone(t)])
    row("networks that none has", [t for t in counted() if alone(t)])
    for group in (
        lambda t: t.op.value,
        kind_of,
        lambda t: f"{t.device}, {t.machine.network}: " + "machine",
    ):
        for name in dict.fromkeys(group(t) for t in counted()):
            row(name, [t for t in counted() if group(t) == name])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--write", action="store_true", help="Write the file.")
    parser.add_argument("--leave-one-out", action="store_true", help="Predict each by the others.")
    parser.add_argument("--jobs", type=int, default=2, help="Processes.")
    args = parser.parse_args()
    if args.leave_one_out:
        print("\n".join(report(left_out(args.jobs))))
        return
    fit = Fit(counted())
    found, text = fit.solve(), FILE.read_text("utf-8")
    for s, k in fit.keys:
        section = re.compile(rf"(\[{s}\][^\[]*?\n{k} = )\S+")
        text = section.sub(rf"\g<1>{found[s][k]:.4g}", text, count=1)
    print(f"cost {fit.cost:.3f}, {len(fit.tables)} tables, {len(fit.keys)} figures")
    for s, k in fit.keys:
        print(f"{s}.{k}: {fit.figures[s][k]:.4g} -> {found[s][k]:.4g}")
    if args.write:
        FILE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
