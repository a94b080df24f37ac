"""links: times calls between the ranks of several hosts.

What is timed is what algorithms use: plans, run by processes, over memory within a host and over
the transport between two. Two ranks exchange messages of all sizes (SendRecv) for what a link
costs: each call waits for the other side's, so its time has α in it once. Several ranks at once,
and one way, are blocks of an Alltoallv of all ranks: any lengths, by one kernel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from hccc.base.diagnostics import Source
from hccc.base.progress import quiet, tell
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.driver.outputs import kernels
from hccc.emit.kept import kept
from hccc.emit.targets import CPU
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.uneven import BlockTable
from hccc.launch.hosts import Host
from hccc.launch.processes import RankProcesses, task_of
from hccc.launch.remote import Shell
from hccc.profile.calibrate import DECILE
from hccc.profile.lines import Line, fit, slope
from hccc.profile.probes import DTYPE, ITEM
from hccc.runtime.measure.patterns import Pattern

SIZES = tuple(8 << 3 * i for i in range(8))  # 8 B to 16 MiB
LEAST_SIZES = 7  # of them that are measured, however long they take: up to 2 MiB
FEWEST, MOST = 3, 40  # bursts of each size
BURST_S = 2e-3
MOST_PAIRED = 8  # hosts of which every pair is measured
LARGE, ROOM = (64 << 10, 4 << 20), 64 << 20  # bytes of blocks at once, and of a rank's buffer
LARGE_S = 0.05  # of a call with large blocks
TIMEOUT_S = 60.0

Groups = dict[tuple[int, ...], list[Host]]  # hosts by their numbers
Flow = tuple[int, int]  # from a host to a host: from each of some of its ranks to one there


@dataclass(frozen=True, slots=True)
class Exchange:
    """Calls of two ranks, each of which sends as much to the other. hosts: a host (links within
    it) or two; times: µs by size."""

    hosts: tuple[int, ...]
    sizes: tuple[int, ...]
    times: tuple[float, ...]

    @property
    def line(self) -> Line:
        """The line through the times."""
        return fit(self.sizes, self.times)


@dataclass(frozen=True, slots=True)
class MeasuredFlows:
    """Large blocks that went at the same time. flows: between which hosts; ranks: how many of each
    host sent; rate: GB/s of each flow, all its ranks together."""

    flows: tuple[Flow, ...]
    ranks: int
    rate: float


def exchange_plan(hosts: int) -> Plan:
    """Compiles the exchange of two ranks on one host, or on two."""
    return _plan(
        f'nRanks=2, AlgoName="exchange{hosts}", OpType="SendRecv", GPUPerNode={2 // hosts}',
        "    for r in range(nRanks):\n        transfer(r, (r + 1) % nRanks, 0, r, recv)\n",
    )


def blocks_plan(hosts: int, ranks: int) -> Plan:
    """Compiles the Alltoallv of so many ranks on each of some hosts."""
    return _plan(
        f'nRanks={hosts * ranks}, AlgoName="blocks", OpType="Alltoallv", GPUPerNode={ranks}',
        "    for r in range(nRanks):\n"
        "        for step in range(nRanks - 1):\n"
        "            peer = (r + step + 1) % nRanks\n"
        "            transfer(r, peer, step, r * nRanks + peer, recv)\n",
    )


@cache
def _plan(header: str, body: str) -> Plan:
    text = f"ResCCLAlgo({header}, NICPerNode=1):\n{body}"
    with quiet():
        return compile_text(Source("link.rccl", text), Options(tune="off")).plan


@contextmanager
def _ranks_of(plan: Plan, hosts: Sequence[Host], shell: Shell | None) -> Iterator[RankProcesses]:
    """Starts the ranks of a plan in processes on hosts; without a shell on this one."""
    place, variants = kept(kernels(Catalogue.of(plan), [CPU])), [(DTYPE, "sum")]
    with RankProcesses(task_of(plan.collective, plan.name, TIMEOUT_S), 1) as processes:
        if shell is None:
            processes.start_here(place, variants)
        else:
            processes.start_on(hosts, shell, place, variants)
        yield processes


def _time(processes: RankProcesses, plan: Plan, pattern: Pattern, seconds: float) -> float:
    """Returns the µs of a call with little disturbance."""
    ranks = processes.ranks(pattern, False, 0, plan.default_window)
    ranks.fill(pattern)
    launches = int(np.clip(BURST_S / ranks.run(1, 2), 1, 20))
    end = time.monotonic() + seconds
    samples: list[float] = []
    while len(samples) < FEWEST or (time.monotonic() < end and len(samples) < MOST):
        samples.append(ranks.run(launches, 0) / launches * 1e6)
    return float(np.quantile(samples, DECILE))


def _exchanged(processes: RankProcesses, hosts: tuple[int, ...], seconds: float) -> Exchange:
    """Times exchanges of all sizes; of larger ones only while time is left for them."""
    plan, end = exchange_plan(len(hosts)), time.monotonic() + 2 * seconds
    times: dict[int, float] = {}
    for size in SIZES:
        pattern = Pattern(plan.collective, DTYPE, "sum", size // ITEM)
        times[size] = _time(processes, plan, pattern, seconds / len(SIZES))
        again = times[size] * 8e-6 * 2 * FEWEST  # of the next size, its warmups too
        if len(times) >= LEAST_SIZES and time.monotonic() + again > end:
            break
    return Exchange(hosts, tuple(times), tuple(times.values()))


def rounds(n: int) -> list[list[tuple[int, int]]]:
    """Returns the pairs of hosts to measure, in rounds of pairs that have no host in common: every
    pair of a few, of more those that are next to each other in a ring."""
    if n < 2:
        return []
    ring = [(min(i, j), max(i, j)) for i in range(n) if (j := (i + 1) % n) != i]
    left = list(combinations(range(n), 2)) if n <= MOST_PAIRED else ring
    found = []
    while left:
        taken: set[int] = set()
        now = []
        for pair in left:
            if not taken & {*pair}:
                taken |= {*pair}
                now.append(pair)
        left = [pair for pair in left if pair not in now]
        found.append(now)
    return found


def within(hosts: Sequence[Host], shell: Shell | None, seconds: float) -> list[Exchange]:
    """Measures the links within each host that has two ranks or more, all hosts at once."""
    several = [i for i, host in enumerate(hosts) if len(host.ranks) > 1]
    groups: Groups = {(i,): [Host(hosts[i].login, range(2))] for i in several}
    tell("Measuring links within hosts")
    with ExitStack() as stack:
        started = _started(stack, groups, shell)
        with ThreadPoolExecutor(max(1, len(started))) as pool:
            return list(pool.map(lambda key: _exchanged(started[key], key, seconds), started))


def between(hosts: Sequence[Host], shell: Shell, seconds: float) -> list[Exchange]:
    """Measures pairs of hosts, with one rank on each, one pair after the other."""
    found: list[Exchange] = []
    planned = rounds(len(hosts))
    each = seconds / max(1, sum(map(len, planned)))
    for number, pairs in enumerate(planned, 1):
        tell(f"Starting ranks of round {number} of {len(planned)}")
        groups: Groups = {
            pair: [Host(hosts[i].login, range(k, k + 1)) for k, i in enumerate(pair)]
            for pair in pairs
        }
        with ExitStack() as stack:
            for key, processes in _started(stack, groups, shell).items():
                tell(f"Measuring {' and '.join(hosts[i].name for i in key)}")
                found.append(_exchanged(processes, key, each))
    return found


def _started(
    stack: ExitStack, groups: Groups, shell: Shell | None
) -> dict[tuple[int, ...], RankProcesses]:
    """Starts two ranks on each group of hosts, all groups at once; they end with the stack."""

    def start(key: tuple[int, ...]) -> RankProcesses:
        return stack.enter_context(_ranks_of(exchange_plan(len(key)), groups[key], shell))

    with ThreadPoolExecutor(max(1, len(groups))) as pool:
        return dict(zip(groups, pool.map(start, groups), strict=True))


def at_once(
    hosts: Sequence[Host], shell: Shell, rate: float, seconds: float
) -> list[MeasuredFlows]:
    """Measures large blocks one way over each pair, then from as many ranks of a host as all have
    to the next, pair by pair both ways and all hosts at once.

    rate: GB/s of one pair, by which blocks are chosen.
    """
    n, k = len(hosts), min(len(host.ranks) for host in hosts)
    plan = blocks_plan(n, k)
    placed = [Host(host.login, range(i * k, i * k + k)) for i, host in enumerate(hosts)]
    most = min(LARGE[1], ROOM // (n * k))
    large = int(np.clip(rate * 1e9 * LARGE_S, LARGE[0], most)) // ITEM
    pairs = [pair for of_round in rounds(n) for pair in of_round]
    cases: list[tuple[tuple[Flow, ...], int]] = []
    for a, b in pairs:
        cases += [(((a, b),), 1), (((b, a),), 1)]
        cases += [(((a, b), (b, a)), k)] if k > 1 else []
    if n > 2:
        cases.append((tuple((i, (i + 1) % n) for i in range(n)), k))
    tell("Starting all ranks")
    found = []
    with _ranks_of(plan, placed, shell) as processes:
        for number, (flows, ranks) in enumerate(cases, 1):
            tell(f"Measuring flows at once: {number} of {len(cases)}")
            times = []
            for count in (large // 4, large):
                pattern = _pattern(plan, k, flows, ranks, count)
                times.append(_time(processes, plan, pattern, seconds / len(cases) / 2))
            one = slope([large // 4 * ITEM, large * ITEM], times)
            found.append(MeasuredFlows(flows, ranks, one * ranks))
    return found


def _pattern(plan: Plan, k: int, flows: Sequence[Flow], ranks: int, count: int) -> Pattern:
    """Returns calls in which each of `ranks` ranks of a host sends `count` elements over a flow.
    k: ranks of each host."""
    n = plan.n_ranks
    lengths = np.zeros((n, n), np.int64)
    for a, b in flows:
        for i in range(ranks):
            lengths[a * k + i, b * k + i] = count
    table = BlockTable.of_rows(plan.collective, lengths.ravel(), count)
    return Pattern(plan.collective, DTYPE, "sum", count, blocks=table)
