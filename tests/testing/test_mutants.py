"""Sabotage of the compiler: one decision of a pass is flipped, and the proofs refuse its plans.

Each mutant is a pass with one piece of its source replaced, in the place of the original. A
battery of programs is compiled; the first error says what caught the mutant. `pytest -s`
prints the table. None may survive.
"""

from __future__ import annotations

import importlib
import inspect
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hccc.base.diagnostics import InternalError, UserError
from hccc.driver import compilation as driver
from hccc.driver import pass_manager
from hccc.driver.options import Options
from hccc.ir.collective import MULTICAST, PROGRAMMABLE, Collective, OpType, block_count
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.passes.multicast import LEAST_RANKS
from hccc.testing.clusters import cluster
from hccc.testing.grow import grow
from tests.marks import slow


@dataclass(frozen=True)
class PassMutant:
    """`old` is replaced by `new` in a pass's module."""

    what: str
    module: str
    old: str
    new: str


MUTANTS = [
    PassMutant(
        "reads of a changed chunk wait for nothing",
        "depend",
        "edges[fill] = writer[s]\n                fill += 1",
        "pass",
    ),
    PassMutant(
        "a write does not wait for the write before it",
        "depend",
        "edges[fill] = writer[d]  # never the writer of s: a task writes one rank\n"
        "                fill += 1",
        "pass",
    ),
    PassMutant(
        "a write does not wait for reads",
        "depend",
        "r = reader[d] if writer[d] >= 0 or overwrites[i] else -1",
        "r = -1",
    ),
    PassMutant(
        "in place is forgotten: first writes never wait",
        "depend",
        "if writer[d] >= 0 or overwrites[i]",
        "if writer[d] >= 0",
    ),
    PassMutant("only the last of several reads is waited for", "depend", "r = older[r]", "r = -1"),
    PassMutant(
        "a changed source is taken from the send buffer",
        "depend",
        "            if writer[s] >= 0:",
        "            initial[i] |= SOURCE_INITIAL\n            if writer[s] >= 0:",
    ),
    PassMutant(
        "a changed target is taken from the send buffer",
        "depend",
        "if writer[d] < 0 and op:",
        "if op:",
    ),
    PassMutant(
        "an unchanged source is taken for changed", "depend", "initial[i] |= SOURCE_INITIAL", "pass"
    ),
    PassMutant(
        "chains grow over readers in between",
        "fuse",
        "if nearest > i and end[h] == j",
        "if end[h] == j",
    ),
    PassMutant(
        "a chain keeps its first member's place",
        "fuse",
        "return contract(p, end, keep_src",
        "return contract(p, head_of(end), keep_src",
    ),
    PassMutant(
        "a chain loses a source",
        "fuse",
        "keep_src = ~own | (first[end[row]] == row)",
        "keep_src = ~own",
    ),
    PassMutant(
        "a chain adds the own value twice",
        "fuse",
        "keep_src = ~own | (first[end[row]] == row)",
        "keep_src = own | ~own",
    ),
    PassMutant(
        "puts of different chunks are one put",
        "fuse",
        "place = p.owner[puts].astype(np.int64) * n_chunks + p.chunk[puts]",
        "place = p.owner[puts].astype(np.int64)",
    ),
    PassMutant(
        "a put joins an earlier one before it may",
        "fuse",
        "if last_pred[k] < h and total",
        "if total",
    ),
    PassMutant(
        "two scratch values share a slot",
        "place",
        "slot = places_of(order, counts) + p.scratch_slots[at_rank]",
        "slot = places_of(order, counts) // 2 + p.scratch_slots[at_rank]",
    ),
    PassMutant(
        "values share scratch slots with what lands there",
        "place",
        "slot = places_of(order, counts) + p.scratch_slots[at_rank]",
        "slot = places_of(order, counts)",
    ),
    PassMutant(
        "values go to scratch where the rank wants them",
        "place",
        "home[value] = c.wants(o.rank[value], chunk[value])",
        "home[value] = c.wants(o.rank[value], chunk[value]) & (o.rank[value] != 0)",
    ),
    PassMutant(
        "nothing is copied aside in place", "place", "if c.swaps_in_place else p", "if False else p"
    ),
    PassMutant(
        "nobody waits for what is copied aside",
        "place",
        "rows = np.concatenate([p.deps.owner() + m, readers[0] + m, writers[0] + m])\n"
        "    values = np.concatenate([p.deps.index + m, readers[1], writers[1]])",
        "rows, values = p.deps.owner() + m, p.deps.index + m",
    ),
    PassMutant(
        "chunks that stay are not copied out of place",
        "place",
        "return _own_copies(p, c)",
        "return p",
    ),
    PassMutant(
        "chunks that stay are copied in place only",
        "place",
        "c.demand else Guard.OUT_OF_PLACE",
        "c.demand else Guard.IN_PLACE",
    ),
    PassMutant(
        "send slots are off by one",
        "place",
        "buffer[start], slot[start] = Buffer.INPUT, c.input_slot(o.rank[start], chunk[start])",
        "buffer[start], slot[start] = Buffer.INPUT, 2 * c.input_slot(o.rank[start], chunk[start])",
    ),
    PassMutant(
        "a block runs backwards",
        "sync",
        'row = np.argsort(block, kind="stable")',
        "row = np.lexsort((-np.arange(len(p)), block))",
    ),
    PassMutant(
        "two blocks of a rank are merged in the wrong order",
        "sync",
        'block = base[p.owner] + tb\n    row = np.argsort(block, kind="stable")',
        "late = tb\n    tb = tb * 0\n    n_tb = np.minimum(n_tb, 1)\n"
        "    base = np.cumsum(n_tb) - n_tb\n    block = base[p.owner] + tb\n"
        "    row = np.lexsort((-late, block))",
    ),
    PassMutant(
        "dependencies on the block before are dropped",
        "sync",
        "apart = block[row] != block[pred]",
        "apart = block[row] > block[pred] + 1",
    ),
    PassMutant(
        "all waits count as implied by the rest",
        "sync",
        "needed: B1 = implied[at] == 0",
        "needed: B1 = implied[at] == 2",
    ),
    PassMutant(
        "one wait in five is forgotten",
        "sync",
        "    return needed\n",
        "    needed[::5] = False\n    return needed\n",
    ),
    PassMutant(
        "staged: local waits are dropped, messages have flags",
        "sync",
        "wanted = ~queued |",
        "wanted = queued |",
    ),
    PassMutant(
        "a put has arrived when its thread block goes on",
        "sync",
        "_needed(edges, away & writes, flagless)",
        "_needed(edges, away & ~away, flagless)",
    ),
    PassMutant(
        "copies whose ends change later are puts",
        "lower",
        "lasting[pred[over & (table[pred, OP] != RRC)]] = False",
        "pass",
    ),
    PassMutant(
        "all that lands at a rank lands in one slot",
        "lower",
        "slot[lands] = places_among(table[lands, DST])",
        "slot[lands] = 0",
    ),
    PassMutant(
        "a recv does not wait for readers of its place",
        "lower",
        "src[p] == dst[t]",
        "src[p] < 0",
    ),
    PassMutant(
        "messages of a queue are merged in any order",
        "fuse",
        "merged = reordered(_merged(p, level, messages=True))",
        "merged = _merged(p, level, messages=True)",
    ),
    PassMutant(
        "one primitive sends twice through a queue",
        "fuse",
        "if used_twice(merged.src) or used_twice(merged.dst) else merged",
        "if False else merged",
    ),
    PassMutant(
        "a message that is passed on counts as a put of the value before it",
        "fuse",
        "alone = (p.src.counts() == 1) & ~_from_queue(p) & _mergeable(p, messages)",
        "alone = (p.src.counts() == 1) & _mergeable(p, messages)",
    ),
    PassMutant(
        "queues that cannot carry every window may have any",
        "limit_window",
        "    if not len(stuck_for_long(plan, enforced(plan))):\n        return plan\n",
        "    return plan\n",
    ),
    PassMutant(
        "a flag is raised at the producer's rank",
        "sync",
        "return waits, Posts(ptr, rank[by_post], flag[by_post]), n_flags",
        "return waits, Posts(ptr, owner[poster][by_post], flag[by_post]), n_flags",
    ),
    PassMutant(
        "flags of a rank collide",
        "sync",
        "flag = places_of(number, n_flags).astype(np.int32)",
        "flag = places_of(number, n_flags).astype(np.int32) // 2 * 2",
    ),
    PassMutant(
        "an edge counts as implied when only its own start is reached",
        "ancestry",
        "if x >= 0 and j != k and shown(label, pred[k], x):",
        "if x >= 0 and shown(label, pred[k], x):",
    ),
    PassMutant(
        "program order counts for one primitive too many",
        "ancestry",
        "        return a <= b\n",
        "        return a <= b + 1\n",
    ),
    PassMutant(
        "a subtree is one primitive too wide",
        "ancestry",
        "end[i] = free[i] + size[i] - 2",
        "end[i] = free[i] + size[i] - 1",
    ),
    PassMutant(
        "clocks: an edge counts as implied when its own start is reached",
        "clocks",
        "apart = sibling != edge",
        "apart = sibling >= 0",
    ),
    PassMutant(
        "clocks: program order counts for one primitive too many",
        "clocks",
        "column[block[a]]] > graph.position[a]",
        "column[block[a]]] >= graph.position[a]",
    ),
    PassMutant(
        "sets: an edge counts as implied if what is before its start is",
        "sets_before",
        "            else:\n                found |= before[pred[k]]",
        "            found |= before[pred[k]] | 1 << max(place[pred[k]] - 1, 0)",
    ),
    PassMutant(
        "sets: the first primitive of a block comes after the last of another",
        "sets_before",
        "found = 0 if i in first else before[i - 1]",
        "found = before[i - 1]",
    ),
    PassMutant(
        "a primitive moves to another block without its order",
        "allocate",
        "    return Blocks(p, _within_rank(connected, block)[connected.of])",
        "    tb = _within_rank(connected, block)[connected.of].copy()\n"
        "    from dataclasses import replace\n"
        "    from hccc.ir.arrays import Csr\n"
        "    p = replace(p, deps=Csr(p.deps.ptr * 0, p.deps.index[:0]))\n"
        "    return Blocks(p, tb)",
    ),
    PassMutant(
        "a switch reads what a rank has at the end",
        "multicast",
        "_operands(chunks, Buffer.START",
        "_operands(chunks, Buffer.VALUE",
    ),
    PassMutant(
        "a switch stores to one rank",
        "multicast",
        "everywhere=c.all_want",
        "everywhere=False",
    ),
    PassMutant(
        "a switch takes a sum of one rank for complete",
        "multicast",
        "everywhere=c.reduces",
        "everywhere=False",
    ),
    PassMutant(
        "a switch begins at the next rank",
        "multicast",
        "owner = c.source_of(chunk.astype(np.int64))",
        "owner = (c.source_of(chunk.astype(np.int64)) + 1) % c.n_ranks",
    ),
    PassMutant(
        "no sum of a switch is complete",
        "multicast",
        "np.full(n, c.reduces, np.uint8)",
        "np.zeros(n, np.uint8)",
    ),
]
HEAD = """
prange = range
def njit(*loop, **options):
    return loop[0] if loop else lambda f: f
def head_of(end):
    first = np.full(len(end), len(end), end.dtype)
    np.minimum.at(first, end, np.arange(len(end), dtype=end.dtype))
    return first[end]
"""


def source_of(module: str) -> str:
    """Returns the text of a pass or an analysis; of a package the texts of its files, as one."""
    if module != "ancestry":
        room = "analysis" if module in ("clocks", "sets_before") else "passes"
        return inspect.getsource(importlib.import_module(f"hccc.{room}.{module}"))
    names = [f"hccc.analysis.ancestry.{name}" for name in ("labels", "queries", "searches")]
    text = "".join(inspect.getsource(importlib.import_module(name)) for name in names)
    own = r"^from (__future__|hccc\.analysis\.ancestry\.\w+) import (\([^)]*\)|[^\n]*)\n"
    return re.sub(own, "", text, flags=re.MULTILINE)


def mutated(m: PassMutant) -> types.ModuleType:
    """Returns the pass's module with its one change, in plain Python."""
    text = source_of(m.module)
    assert text.count(m.old) == 1, f"{m.module}: {text.count(m.old)} places say {m.old!r}"
    text = text.replace(m.old, m.new)
    for line in (
        "from hccc.base.jit.compiled import njit, prange\n",
        "from hccc.base.jit.compiled import njit\n",
    ):
        text = text.replace(line, HEAD)
    module = types.ModuleType(f"mutant_{m.module}")
    sys.modules[module.__name__] = module  # dataclasses look there
    exec(compile(text, m.module, "exec"), module.__dict__)
    return module


def drawn(dice: random.Random, bound: int) -> int:
    """Draws a choice from 0 to `bound`."""
    return dice.randint(0, bound) if bound > 0 else 0


def battery() -> Iterator[Program]:
    """Yields programs small enough for plain Python that between them need every decision."""
    for seed in range(12):
        for op in PROGRAMMABLE:
            dice = random.Random(f"{seed} {op}")
            n = dice.randint(2, 5)
            per = dice.randint(1, 2)
            c = Collective(
                op, n, block_count(op, n) * per, dice.randrange(n) if op in ROOTED else 0
            )
            sizes = [g for g in range(1, n + 1) if n % g == 0]
            gpus = sizes[seed % len(sizes)]
            yield grow(c, partial(drawn, dice), gpus_per_node=gpus, nics_per_node=gpus, channels=1)


ROOTED = {OpType.BROADCAST, OpType.REDUCE, OpType.GATHER, OpType.SCATTER}
WAYS = [
    Options(fuse="none", transport=Transport.DIRECT, verify_each=False),
    Options(fuse="full", transport=Transport.DIRECT),
    Options(fuse="full", max_sms=1, transport=Transport.DIRECT),
    Options(transport=Transport.STAGED, allocator="connection"),
    Options(fuse="none", network_lowering="put", allocator="connection"),
    Options(fuse="full", network_lowering="put"),
    Options(fuse="full", network_lowering="slots"),
    Options(fuse="full", network_lowering="slots", slots=1, max_sms=1),
]


EdgeAnswers = Callable[..., NDArray[np.uint8]]  # an answer for every edge


def without_shortcut(answers: int) -> EdgeAnswers:
    """Returns a `settle_edges` that leaves every answer open."""
    return lambda _, ptr, pred, limit: np.full(len(pred), answers, np.uint8)


def implied_edges(m: PassMutant, module: types.ModuleType) -> EdgeAnswers:
    """Returns `clocks.implied_edges` with the mutant in its part."""
    if m.module == "sets_before":
        return lambda *order: module.sets_before(*order).implied
    if m.module == "clocks":
        vars(module).update(FEW=0, settle_edges=without_shortcut(module.UNKNOWN))
        spoiled: EdgeAnswers = module.implied_edges
        return spoiled
    clocks = mutated(PassMutant("none", "clocks", "from __future__", "from __future__"))
    vars(clocks).update(FEW=0, labels=module.labels, settle_edges=module.settle_edges)
    whole: EdgeAnswers = clocks.implied_edges
    return whole


def ways_of(m: PassMutant, program: Program) -> list[tuple[Options, Topology | None]]:
    """Returns how a program is compiled for a mutant: by the switch where it is of that pass."""
    if m.module != "multicast":
        return [(way, None) for way in WAYS]
    c = program.collective
    if c.op not in MULTICAST or c.n_ranks < LEAST_RANKS:
        return []
    switch = cluster(f"define node1 = {c.n_ranks}\ndefine device = H100")
    return [(Options(transport=Transport.MULTICAST, tune="off"), switch)]


def caught(m: PassMutant, monkeypatch: pytest.MonkeyPatch, programs: list[Program]) -> str | None:
    """Returns the refusal of the first plan that the mutant spoils, or None."""
    module = mutated(m)
    if m.module in ("clocks", "ancestry", "sets_before"):
        sync = importlib.import_module("hccc.passes.sync")
        monkeypatch.setattr(sync, "implied_edges", implied_edges(m, module))
    else:
        monkeypatch.setattr(pass_manager, m.module, getattr(module, m.module))
    for program in programs:
        for way, site in ways_of(m, program):
            try:
                driver.compile_program(program, way, site)
            except UserError as error:
                return f"{error.problem.code} {error.problem.message[:60]}"
            except InternalError as error:
                return f"invariant: {str(error)[:50]}"
            except (IndexError, ValueError) as error:
                return f"{type(error).__name__}: {str(error)[:50]}"
    return None


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    found = list(battery())
    for way in WAYS:
        for program in found[:9]:
            driver.compile_program(program, replace(way, verify_each=True))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("every", [12, slow(1)])
def test_no_mutant_survives(
    monkeypatch: pytest.MonkeyPatch, programs: list[Program], every: int
) -> None:
    table = Table("pass", "mutant", "caught by")
    survivors = []
    for m in MUTANTS[::every]:
        with monkeypatch.context() as patch:
            how = caught(m, patch, programs)
        table.add_row(m.module, m.what, how or "NOTHING")
        survivors += [] if how else [m.what]
    Console(width=150).print(table)
    assert not survivors


def test_the_battery_is_sound_without_mutants(programs: list[Program]) -> None:
    assert len(programs) == 12 * len(PROGRAMMABLE)
