"""Random programs on random clusters: scheduled for the cluster, proved, and right when run."""

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir import topology as topology_ir
from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.topology import Topology
from hccc.testing import (
    cluster_texts,
    correct_programs,
    exact_inputs,
    execute,
    run,
    text,
    topologies,
)
from hccc.testing.clusters import cluster
from tests.health_checks import EVERY_CHECK


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=EVERY_CHECK)
@given(topologies())
def test_topologies_keep_their_invariants(t: Topology) -> None:
    assert topology_ir.check(t) == []
    assert 1 <= t.n_ranks <= 20


@pytest.mark.slow
@settings(max_examples=16, deadline=None, suppress_health_check=EVERY_CHECK)
@given(cluster_texts(), st.sampled_from([OpType.ALLGATHER, OpType.ALLREDUCE]), st.data())
def test_the_road_on_any_cluster_gives_the_result(
    source: str, op: OpType, data: st.DataObject
) -> None:
    t = cluster(source)
    assume(2 <= t.n_ranks <= 8)
    note(source)
    c = Collective(op, t.n_ranks, block_count(op, t.n_ranks))
    program = data.draw(correct_programs(c))
    note(text(program))
    try:
        plan = compile_program(program, Options(verify_each=True, sizes="64K"), t).plan
    except UserError as error:
        assert error.problem.code == "E131"  # a transfer that the cluster has no way for
        return
    x = exact_inputs(c, np.int64, (2,))
    want = run(program, x, "sum", np.int64)
    got = execute(plan, x, "sum", seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))
