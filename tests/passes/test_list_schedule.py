"""list_schedule: the order of tasks, and the choice of a scheduler for a cluster."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hccc.analysis.heap import pop, push
from hccc.api.functions import compile as compile_library
from hccc.api.functions import simulate
from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir import pipeline as pipeline_ir
from hccc.ir.choices import Scheduler
from hccc.ir.collective import OpType
from hccc.ir.dag import Dag
from hccc.ir.program import Program
from hccc.lang.transfer import load as transfer
from hccc.passes.check_reachable import check_reachable
from hccc.passes.depend import depend
from hccc.passes.list_schedule import list_schedule
from hccc.passes.verify import verify
from hccc.testing import correct_programs, topologies
from tests.health_checks import EVERY_CHECK
from tests.marks import slow
from tests.passes import textbook

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLUSTERS = EXAMPLES / "clusters"
HEADER = (
    'ResCCLAlgo(nRanks=4, nChannels=1, nWarps=16, AlgoName="a", OpType="Broadcast", '
    "GPUPerNode=4, NICPerNode=4, nChunks=3):\n"
)


def dag_of(text: str) -> Dag:
    header = HEADER.replace("Broadcast", "Broadcast")
    return depend(verify(transfer.parse(Source("a.rccl", header + text))))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_heap_sorts(keys: list[int]) -> None:
    key, heap = np.array(keys, np.float64), np.zeros(len(keys) + 1, np.int32)
    for size, item in enumerate(np.random.default_rng(0).permutation(len(keys))):
        push(heap, 1, size, item, key)
    found = [pop(heap, 1, size, key) for size in range(len(keys), 0, -1)]
    assert found == sorted(range(len(keys)), key=lambda i: (keys[i], i))


@settings(max_examples=40, deadline=None)
@given(correct_programs(), st.integers(1, 64))
def test_it_is_a_pipeline(program: Program, batches: int) -> None:
    assert pipeline_ir.check(list_schedule(depend(verify(program)), batches)) == []


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=EVERY_CHECK)
@given(st.data())
def test_it_is_one_on_any_cluster(data: st.DataObject) -> None:
    program = data.draw(correct_programs(max_ranks=5, max_transfers=30))
    n = program.collective.n_ranks
    t = data.draw(topologies().filter(lambda t: t.n_ranks == n))
    try:
        check_reachable(program, t)
    except UserError:
        assume(False)
    assert pipeline_ir.check(list_schedule(depend(verify(program), t))) == []


def test_what_most_hangs_on_goes_first() -> None:
    """Three chunks leave rank 0 for rank 1 over one link; the last of them has two hops to go."""
    star = [(0, dst, 0, chunk) for chunk in (0, 1) for dst in (1, 2, 3)]
    chain = [(0, 1, 0, 2), (1, 3, 1, 2), (3, 2, 2, 2)]
    dag = dag_of(
        "".join(f"    transfer({s}, {d}, {k}, {c}, recv)\n" for s, d, k, c in star + chain)
    )
    t = dag.program.transfers
    order = [i for i in list_schedule(dag).order if (t["src"][i], t["dst"][i]) == (0, 1)]
    assert [int(t["chunk"][i]) for i in order] == [2, 0, 1]


def test_a_link_in_use_is_waited_for() -> None:
    """Chunk 1 leaves rank 0 behind chunk 0, which has more hops to go. So chunk 2 is the first that
    passes from rank 1 to rank 2, though it has come over two links."""
    rows = [(0, 1, 0, 0), (1, 3, 1, 0), (3, 4, 2, 0), (4, 5, 3, 0)]
    rows += [(0, 1, 1, 1), (1, 2, 2, 1)]
    rows += [(6, 7, 0, 2), (7, 1, 1, 2), (1, 2, 3, 2)]
    dag = depend(textbook.program(OpType.CUSTOM, 8, 3, [(*row, textbook.RECV) for row in rows]))
    t = dag.program.transfers
    order = [i for i in list_schedule(dag, 16).order if (t["src"][i], t["dst"][i]) == (1, 2)]
    assert [int(t["chunk"][i]) for i in order] == [2, 1]


def test_without_a_cluster_it_is_hpds() -> None:
    source = transfer.read(EXAMPLES / "hm_reducescatter.rccl")
    assert driver.compile_text(source, Options()).options.scheduler == "hpds"


@pytest.mark.parametrize("name", ["hm_allgather", slow("hm_allreduce"), slow("hm_reducescatter")])
def test_the_faster_of_both_is_never_behind_round_robin(name: str) -> None:
    """HPDS alone is, on ResCCL's own programs: benchmarks/paper/README.md says why."""
    sizes = [1 << 20, 1 << 26, 1 << 29]
    took = {}
    for scheduler in (Scheduler.HPDS, Scheduler.LIST, Scheduler.ROUND_ROBIN):
        how = Options(scheduler=scheduler, tune="off", prove=False)
        made = compile_library(EXAMPLES / f"{name}.rccl", how, cluster="resccl-topo4")
        calls = simulate(made, sizes, cluster="resccl-topo4")
        took[scheduler] = [float(str(row["time"])) for row in calls.records()]
    pairs = zip(took[Scheduler.HPDS], took[Scheduler.LIST], strict=True)
    best = [min(pair) for pair in pairs]
    assert all(a <= b * (1 + 1e-9) for a, b in zip(best, took[Scheduler.ROUND_ROBIN], strict=True))
