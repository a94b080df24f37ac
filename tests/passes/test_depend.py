"""depend: every conflict is an edge or implied, and no edge is idle."""

from dataclasses import replace

import numpy as np
import pytest

from hccc.ir import dag as dag_ir
from hccc.ir.arrays import Csr
from hccc.ir.collective import OpType
from hccc.ir.dag import Dag
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.transport import PURE
from hccc.passes.depend import depend
from hccc.passes.hpds import hpds
from hccc.passes.lower import lower
from tests.passes.textbook import RECV, RRC, SMALL, SWEEP, few, planned, program, verdict, works
from tests.sabotage import without_edge


def edges(dag: Dag) -> set[tuple[int, int]]:
    return set(zip(dag.preds.index.tolist(), dag.preds.owner().tolist(), strict=True))


def without(dag: Dag, k: int) -> Dag:
    """Removes the k-th edge of `dag`."""
    return replace(dag, preds=without_edge(dag.preds, k))


def test_a_read_waits_for_the_write_and_a_write_for_the_reads() -> None:
    rows = [(0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV), (1, 3, 1, 0, RECV), (0, 1, 2, 0, RECV)]
    dag = depend(program(OpType.BROADCAST, 4, 1, rows))
    assert edges(dag) == {(0, 1), (0, 2), (1, 3), (2, 3)}
    assert dag.initial.tolist() == [1, 0, 0, 1]


def test_reductions_of_one_step_are_chained_in_program_order() -> None:
    rows = [(2, 0, 0, 0, RRC), (1, 0, 0, 0, RRC), (3, 0, 0, 0, RRC)]
    dag = depend(program(OpType.REDUCE, 4, 1, rows))
    assert edges(dag) == {(0, 1), (1, 2)}
    assert dag.initial.tolist() == [3, 1, 1]


def test_a_first_write_waits_for_reads_of_the_send_buffer_only_where_it_overwrites_it() -> None:
    rows = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV)]
    assert edges(depend(program(OpType.ALLREDUCE, 2, 1, rows))) == {(0, 1)}
    rows = [(1, 0, 0, 0, RRC), (2, 1, 1, 0, RECV), (1, 0, 2, 0, RRC)]
    assert edges(depend(program(OpType.REDUCE, 3, 1, rows))) == {(1, 2), (0, 2)}


@pytest.mark.parametrize("p", SMALL.values(), ids=SMALL)
def test_invariants(p: Program) -> None:
    assert dag_ir.check(depend(p)) == []


def test_check_says_no() -> None:
    dag = depend(SMALL["ring allreduce"])
    stray = Csr(np.append(dag.preds.ptr[:-1], dag.preds.ptr[-1] + 1), np.append(dag.preds.index, 0))
    assert dag_ir.check(replace(dag, preds=stray))
    backwards = dag.preds.index.copy()
    backwards[0] = len(dag) - 1
    assert dag_ir.check(replace(dag, preds=Csr(dag.preds.ptr, backwards)))


@SWEEP
@pytest.mark.parametrize("transport", PURE)
@pytest.mark.parametrize("name", ["ring allreduce", "mesh allreduce", "broadcast", "hm allgather"])
def test_no_dropped_edge_survives(name: str, transport: Transport, most: int) -> None:
    """A Plan made without one dependency is refused, or it is right all the same."""
    dag = depend(SMALL[name])
    refused = 0
    edges = few(range(len(dag.preds.index)), most)
    for k in edges:
        plan = planned(lower(hpds(without(dag, k)), transport))
        if verdict(plan) is None:
            assert works(plan), f"edge {k} of {name}"
        else:
            refused += 1
    assert refused * 5 > len(edges)
