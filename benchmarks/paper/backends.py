"""Backends of ResCCL's comparison, each the same algorithm on the same simulated cluster.

| name        | is                                                                          |
|-------------|-----------------------------------------------------------------------------|
| ResCCL      | HPDS, task-level, state-based blocks, staged, unfused: as ResCCL has it      |
| hccc        | hccc's default: the faster order, micro-batches by size, mixed, fused        |
| NCCL ring   | of `hccc.predict.baselines`, as are all others                               |
| MSCCL       | algorithm-level, a block a connection, interpreted                           |
| stage-level | MSCCL with a block a connection and stage: how it runs expert algorithms     |
| round-robin | ResCCL, but scheduled round-robin                                            |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.programs import EXAMPLES, hierarchical_mesh
from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.predict import baselines
from hccc.predict.simulation import MICRO_BATCHES, Adapt
from hccc.sim.machine import Machine, batches_of, pieces, prepare
from hccc.sim.simulate import Request, Run, simulate
from hccc.synth.bounds import bound
from hccc.synth.builtin.ring import ring

OPS = {
    "AllGather": OpType.ALLGATHER,
    "AllReduce": OpType.ALLREDUCE,
    "ReduceScatter": OpType.REDUCESCATTER,
}
CHANNELS = 4  # ResCCL Table 2: 4 instances of custom algorithms
MOST_BATCHES = 512  # of a free micro-batch: smaller ones only take longer to simulate
ONE_SERVER = "resccl-1-server"  # Table 1 alone has it: a server of Topo2


@dataclass(frozen=True, slots=True)
class PaperSetting:
    """What holds for every row.

    sizes, micro_batch: bytes; block: GB/s of a thread block, None: as the clusters say.
    """

    sizes: tuple[int, ...] = tuple(1 << k for k in range(23, 33))
    micro_batch: int = 1 << 20
    block: float | None = None


@dataclass(frozen=True, slots=True)
class PaperCase:
    """One algorithm on one cluster. algorithm: "HM", hierarchical mesh, or "ring"."""

    algorithm: str
    op: str
    cluster: str


@dataclass(frozen=True, slots=True)
class PaperBackend:
    """One backend running one PaperCase.

    plain: it takes any micro-batch; chooses: by the size, where it is not told.
    """

    machine: Machine
    adapt: Adapt
    plain: bool
    chooses: bool = False


@dataclass
class PaperBench:
    """Compiles and simulates, each plan and call once. place: a folder for the clusters as set."""

    setting: PaperSetting
    place: Path
    _backends: dict[PaperCase, dict[str, PaperBackend]] = field(default_factory=dict)
    _limits: dict[tuple[str, str], bound.Limits] = field(default_factory=dict)
    _runs: dict[tuple[PaperCase, str, int, bool], Run] = field(default_factory=dict)

    def cluster_file(self, name: str) -> Path:
        """Writes a cluster of the examples, with the setting's thread blocks."""
        text = (EXAMPLES / "clusters" / f"{name.replace('1-server', 'topo2')}.cluster").read_text()
        if name == ONE_SERVER:
            text = text.replace("nodenum = 2", "nodenum = 1").replace("= 2 * 8", "= 8")
        if self.setting.block is not None:
            text = re.sub(r"block => [\d.]+", f"block => {self.setting.block:g}", text)
        file = self.place / f"{name}.cluster"
        file.write_text(text)
        return file

    def limits(self, case: PaperCase) -> bound.Limits:
        """Returns what no schedule can beat."""
        key = (case.op, case.cluster)
        if key not in self._limits:
            t = cluster.load(self.cluster_file(case.cluster))
            self._limits[key] = bound.limits(t, OPS[case.op])
        return self._limits[key]

    def run(self, case: PaperCase, backend: str, size: int, *, free: bool = False) -> Run:
        """Simulates one call.

        free: with the best micro-batch instead of the setting's or its own.
        """
        key = (case, backend, size, free)
        if key not in self._runs:
            self._runs[key] = self._simulated(self.backend(case, backend), size, free)
        return self._runs[key]

    def times_over(
        self, case: PaperCase, theirs: Sequence[Run], backend: str, *, free: bool = False
    ) -> list[float]:
        """Returns how many times `backend`'s time each of the runs `theirs` takes, one for each
        size."""
        ours = [self.run(case, backend, run.size, free=free) for run in theirs]
        return [t.time / o.time for t, o in zip(theirs, ours, strict=True)]

    def backend(self, case: PaperCase, backend: str) -> PaperBackend:
        """Returns how `backend` runs `case`."""
        if case not in self._backends:
            self._backends[case] = dict(self._compiled(case))
        return self._backends[case][backend]

    def _simulated(self, one: PaperBackend, size: int, free: bool) -> Run:
        tried = {0 if one.chooses else self.setting.micro_batch}
        if free and one.plain:
            tried |= {m for m in MICRO_BATCHES if _batches(one.machine, size, m) <= MOST_BATCHES}
        runs = [simulate(one.machine, one.adapt(Request(size, m))) for m in sorted(tried)]
        return min(runs, key=lambda run: run.time)

    def _compiled(self, case: PaperCase) -> Iterator[tuple[str, PaperBackend]]:
        t = cluster.load(self.cluster_file(case.cluster))
        program = _program(case, t)
        options = Options("hpds", transport=Transport.STAGED, fuse="none", tune="off")
        compiled = driver.compile_program(program, options, t)
        for one in baselines.alternatives(compiled, t, options):
            name = "ResCCL" if one.name == "hccc" else one.name
            yield name, PaperBackend(prepare(one.plan(), t), one.adapt, one.free)
        sizes = f"{self.setting.sizes[0]}..{self.setting.sizes[-1]}"
        plan = driver.compile_program(program, Options(sizes=sizes, plans=1), t).plan
        yield "hccc", PaperBackend(prepare(plan, t), lambda request: request, True, chooses=True)


def _batches(machine: Machine, size: int, micro_batch: int) -> int:
    return batches_of(machine.plan, pieces(machine.plan, size)[0], micro_batch)[0]


def _program(case: PaperCase, t: Topology) -> Program:
    if case.algorithm == "ring":
        return ring(t, OPS[case.op], channels=CHANNELS)
    per_node = len(t) // t.n_nodes
    text = hierarchical_mesh(case.op.lower(), t.n_nodes, per_node, CHANNELS)
    return transfer.parse(Source(f"hm_{case.op.lower()}.rccl", text))
