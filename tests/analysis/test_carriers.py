"""carried: the places that proxies read and write after the primitive that hands them over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hccc.analysis.carriers import carriers, enforced_with_carriers, locate_carried
from hccc.analysis.locations import locate
from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.program import Op, Program
from hccc.proofs.race import race
from hccc.testing import Poison, exact_inputs, execute, expected
from tests.passes.textbook import program, ring_allreduce
from tests.sabotage import without_wait

RECV, RRC = Op.RECV, Op.RRC
REPLACED = [
    (1, 0, 0, 0, RRC),
    (2, 1, 1, 0, RECV),
    (1, 0, 2, 0, RRC),
    (0, 1, 3, 0, RECV),
    (0, 2, 3, 0, RECV),
]


def on_nodes(p: Program, gpus: int = 1, **chosen: str) -> Plan:
    """Compiles `p` with `gpus` GPUs a node, unfused, with puts between nodes."""
    way = Options(network_lowering="put", fuse="none", allocator="connection", **chosen)  # type: ignore[arg-type]
    return compile_program(replace(p, gpus_per_node=gpus, nics_per_node=gpus), way).plan


def test_direct_plans_have_no_carriers() -> None:
    plan = on_nodes(ring_allreduce(4), 4)
    made, waits = enforced_with_carriers(plan)
    assert not len(made.of) and len(waits) == len(plan)
    where = locate(plan, in_place=False)
    assert locate_carried(plan, made, where) is where


def test_carriers_are_blocks_of_their_own_for_each_block_and_peer() -> None:
    of, peer = np.array([4, 0, 3, 4, 3], np.int32), np.array([7, 7, 7, 2, 7], np.int32)
    made = carriers(np.array([0, 2, 3, 5]), of, peer)
    assert made.tb_ptr.tolist() == [0, 2, 3, 5, 6, 7, 9]
    assert made.of.tolist() == [0, 4, 3, 4] and made.peer.tolist() == [7, 2, 7, 7]
    assert [made.primitive(i) for i in (1, 5, 6, 8)] == [1, 0, 4, 4]
    row, pred, rank = np.array([2, 2, 1]), np.array([0, 1, 4]), np.array([7, 7, 2])
    edges = made.edges(row, pred, np.array([True, False, True]), rank)
    found = [edges.row(i).tolist() for i in (1, 2, 5, 6, 7, 8)]
    assert found == [[6], [1, 5], [0], [4], [3], [4]]


def test_a_put_is_read_and_written_by_its_carrier() -> None:
    plan = on_nodes(ring_allreduce(4), 2)
    made, _ = enforced_with_carriers(plan)
    where = locate(plan, in_place=False)
    all_rows = locate_carried(plan, made, where)
    puts = np.flatnonzero(plan.network_puts())
    assert len(puts) == len(all_rows.src) - len(where.src) > 0
    for k in puts.tolist():
        i = int(plan.dst.owner()[k])
        row = int(made.row(np.array([i]), plan.dst.rank[k : k + 1])[0])
        assert not np.isin(where.dst[k], all_rows.dst[slice(*all_rows.dst_ptr[i : i + 2])])
        assert where.dst[k] in all_rows.dst[slice(*all_rows.dst_ptr[row : row + 2])]
        assert all_rows.src[all_rows.src_ptr[row]] == where.src[plan.src.ptr[i]]  # copies


def test_a_carrier_of_flags_alone_reads_nothing() -> None:
    plan = on_nodes(program(OpType.ALLREDUCE, 3, 1, REPLACED))
    made, _ = enforced_with_carriers(plan)
    where = locate_carried(plan, made, locate(plan, in_place=False))
    read, written = np.diff(where.src_ptr)[len(plan) :], np.diff(where.dst_ptr)[len(plan) :]
    assert (written == 0).any() and (written > 0).any()
    assert (read == (written > 0)).all()


def test_what_a_proxy_has_not_read_yet_is_not_overwritten() -> None:
    """Without one of its waits the plan is refused, and goes wrong in some interleaving."""
    plan = on_nodes(program(OpType.ALLREDUCE, 3, 1, REPLACED))
    x = exact_inputs(plan.collective, np.int64, (3,))
    want = expected(plan.collective, x, "sum", np.int64)
    spoiled, named = 0, ""
    for k in range(len(plan.waits.index)):
        broken = without_wait(plan, k)
        with pytest.raises(UserError, match="nothing orders") as caught:
            race(broken)
        named += str(caught.value)
        spoiled += any(wrong(broken, x, want, seed) for seed in range(120))
    assert "what a proxy carries for rank" in named
    assert spoiled == len(plan.waits.index)
    assert not any(wrong(plan, x, want, seed) for seed in range(60))


def wrong(plan: Plan, x: list[np.ndarray], want: list[np.ndarray], seed: int) -> bool:
    """Tells whether an interleaving gives other data, or reads a place never written."""
    try:
        got = execute(plan, x, in_place=bool(seed % 2), seed=seed)
    except Poison:
        return True
    return not all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
