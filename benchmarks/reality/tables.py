"""tables: the published measurements, each with the machine it was made on."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.reality.cluster_text import cluster_text
from hccc.base.diagnostics import Source
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.predict.nccl.calibration import Table as Calibration
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.machine import NcclMachine, of
from hccc.predict.nccl.model import Prediction, predict
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol

HERE = Path(__file__).parent
CLASSES = ((64 << 10, "<= 64 KB"), (4 << 20, "<= 4 MB"), (1 << 62, "above"))


@dataclass(frozen=True, slots=True, eq=False)
class PublishedTable:
    """Measurements of one collective on one machine: size in bytes and µs, f8[rows].

    cluster: the machine in the cluster language, from which `machine` is read; nodes: how many it
    has; odd: the size from which on it is counted and not fitted, or None; context: neither.
    """

    id: str
    name: str
    cluster: str
    nodes: int
    library: str
    op: OpType
    forced: Forced
    sizes: NDArray[np.int64]
    times: NDArray[np.float64]
    odd: int | None
    context: bool
    source: str
    note: str

    @property
    def device(self) -> str:
        """Returns the name of the GPUs."""
        return _topology(self.cluster).devices[0].name

    @property
    def machine(self) -> NcclMachine:
        """Returns what NCCL or RCCL sees of the cluster."""
        return _machine(self.cluster, self.library)

    def predicted(self, calibration: Calibration | None = None) -> list[Prediction]:
        """Predicts each size by the model."""
        return predict(self.machine, self.op, self.sizes.tolist(), self.forced, calibration)


def _forced(record: dict[str, object]) -> Forced:
    algorithm = {a.lower(): a for a in NcclAlgorithm}.get(str(record["algo"]).split(" ")[0].lower())
    words = str(record["proto"]).split(" ")[0].lower()
    protocol = {p.lower(): p for p in Protocol}.get(words)
    if record["collective"] == "sendrecv":
        protocol = None
    channels = record["channels"]
    return Forced(algorithm, protocol, channels if isinstance(channels, int) else None)


def _op(name: str) -> OpType:
    return next(op for op in OpType if op.value.lower() == name.replace("_", "").lower())


@cache
def _topology(cluster: str) -> Topology:
    return parse_cluster(Source("cluster", cluster))


@cache
def _machine(cluster: str, library: str) -> NcclMachine:
    return of(_topology(cluster), rccl=library.startswith("RCCL"))


@cache
def tables() -> tuple[PublishedTable, ...]:
    """Loads every table that a machine of machines.toml has."""
    records = {r["id"]: r for r in json.loads((HERE / "measured.json").read_text("utf-8"))}
    result = []
    for entry in tomllib.loads((HERE / "machines.toml").read_text("utf-8"))["machine"]:
        for id, nodes in entry["tables"].items():
            r = records[id]
            least = entry.get("from", {}).get(id, 0)
            rows = np.array([row[:2] for row in r["rows"] if row[0] >= least], np.float64)
            result.append(
                PublishedTable(
                    id,
                    entry["name"],
                    cluster_text(entry, nodes),
                    nodes,
                    r["library"],
                    _op(r["collective"]),
                    _forced(r),
                    rows[:, 0].astype(np.int64),
                    rows[:, 1],
                    entry.get("odd", {}).get(id),
                    r["use"] == "context" or entry.get("guess", False),
                    r["source"],
                    r["note"] or "",
                )
            )
    return tuple(result)


def others() -> list[tuple[str, str, str, str]]:
    """Returns the tables that are not predicted: id, library, machine, collective.

    They are of other libraries' kernels, or of a machine that nobody describes.
    """
    seen = {t.id for t in tables()}
    records = json.loads((HERE / "measured.json").read_text("utf-8"))
    return [
        (r["id"], r["library"], r["machine"], r["collective"])
        for r in records
        if r["id"] not in seen
    ]


def size_class(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the row of CLASSES of each size."""
    return np.searchsorted([bound for bound, _ in CLASSES], sizes)
