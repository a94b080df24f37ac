"""fuse merges exactly what may be merged, and a wrong merge does not get through."""

from functools import partial

import numpy as np
import pytest

from hccc.ir import primitives as primitives_ir
from hccc.ir.collective import OpType
from hccc.ir.primitives import Primitives, Transport
from hccc.passes import fuse as fuse_module
from hccc.passes.contract import contract
from hccc.passes.fuse import LEVELS, fuse
from tests.passes.textbook import (
    RECV,
    RRC,
    SMALL,
    SWEEP,
    few,
    lowered,
    made,
    mesh_allreduce,
    planned,
    program,
    shapes,
    verdict,
    works,
)


def test_levels_of_a_mesh() -> None:
    p = lowered(mesh_allreduce(4))
    assert shapes(fuse(p, "none")) == {(2, 1): 12, (1, 1): 12}
    assert shapes(fuse(p, "reduce")) == {(4, 1): 4, (1, 1): 12}
    assert shapes(fuse(p, "full")) == {(4, 4): 4}
    assert shapes(fuse(p, "auto")) == {(4, 4): 4}


def test_staged_primitives_stay() -> None:
    p = lowered(mesh_allreduce(4), Transport.STAGED)
    assert all(fuse(p, level) is p for level in (*LEVELS, "auto"))


@pytest.mark.parametrize("level", [*LEVELS, "auto"])
@pytest.mark.parametrize("name", SMALL)
def test_invariants_and_result(name: str, level: str) -> None:
    p = fuse(lowered(SMALL[name]), level)
    assert primitives_ir.check(p) == []
    plan = planned(p)
    assert verdict(plan) is None
    assert works(plan)


def test_a_value_read_in_between_keeps_reductions_apart() -> None:
    rows = [(1, 0, 0, 0, RRC), (0, 2, 1, 0, RECV), (3, 0, 2, 0, RRC), (2, 0, 3, 0, RECV)]
    rows += [(1, 0, 4, 0, RECV)]
    rows = [(1, 0, 0, 0, RRC), (0, 1, 1, 0, RECV), (2, 0, 2, 0, RRC)]
    p = lowered(program(OpType.REDUCE, 3, 1, rows))
    assert shapes(fuse(p, "reduce")) == {(2, 1): 2, (1, 1): 1}
    rows = [(1, 0, 0, 0, RRC), (2, 0, 2, 0, RRC)]
    p = lowered(program(OpType.REDUCE, 3, 1, rows))
    assert shapes(fuse(p, "reduce")) == {(3, 1): 1}


def test_a_source_overwritten_in_between_keeps_reductions_apart() -> None:
    """Merging would read rank 1 after rank 2's piece has replaced what was there."""
    rows = [(1, 0, 0, 0, RRC), (2, 1, 1, 0, RECV), (1, 0, 2, 0, RRC), (0, 1, 3, 0, RECV)]
    rows += [(0, 2, 3, 0, RECV)]
    p = lowered(program(OpType.ALLREDUCE, 3, 1, rows))
    fused = fuse(p, "reduce")
    assert shapes(fused) == shapes(p)


def test_a_put_that_waits_for_something_later_stays() -> None:
    """Rank 2 must first give its old value away, which happens after the first put."""
    rows = [(0, 1, 0, 0, RECV), (1, 2, 1, 0, RECV), (2, 3, 2, 0, RECV), (0, 2, 3, 0, RECV)]
    p = lowered(program(OpType.BROADCAST, 4, 1, rows))
    assert shapes(fuse(p, "full")) == {(1, 1): 4}
    rows = [(0, 1, 0, 0, RECV), (0, 2, 0, 0, RECV), (0, 3, 0, 0, RECV)]
    p = lowered(program(OpType.BROADCAST, 4, 1, rows))
    assert shapes(fuse(p, "full")) == {(1, 3): 1}


def test_a_put_whose_target_is_still_read_does_not_join_the_reduction() -> None:
    """Rank 1's old value goes to rank 2 after rank 0's reduction, before rank 0's put."""
    rows = [(1, 0, 0, 0, RRC), (2, 0, 0, 0, RRC), (1, 2, 1, 0, RECV), (0, 1, 2, 0, RECV)]
    rows += [(0, 2, 3, 0, RECV)]
    p = lowered(program(OpType.ALLREDUCE, 3, 1, rows))
    fused = fuse(p, "full")
    assert (3, 3) not in shapes(fused)
    plan = planned(fused)
    assert verdict(plan) is None
    assert works(plan)


def test_operands_are_limited() -> None:
    p = lowered(mesh_allreduce(20))
    for level in ("reduce", "full"):
        fused = fuse(p, level)
        assert fused.src.counts().max() == fuse_module.MAX_OPERANDS
        assert fused.dst.counts().max() <= fuse_module.MAX_OPERANDS


def merges(p: Primitives) -> list[tuple[int, int]]:
    """Every merge of two primitives of one owner and chunk: (head, member)."""
    same = (p.owner[:, None] == p.owner) & (p.chunk[:, None] == p.chunk)
    return [(int(a), int(b)) for a, b in np.argwhere(same) if a != b]


def merged(p: Primitives, into: int, member: int) -> Primitives:
    """`member` merged into `into`, as fuse would: a chain, a multi-put, or a result's put."""
    rep = np.arange(len(p), dtype=np.int32)
    rep[member] = into
    keep_src, keep_dst = np.ones(len(p.src.rank), np.bool_), np.ones(len(p.dst.rank), np.bool_)
    if p.src.counts()[member] == 1:
        keep_src[p.src.ptr[member]] = False
    else:
        keep_src[p.src.ptr[max(into, member)]] = False
        keep_dst[p.dst.ptr[min(into, member)]] = False
    return contract(p, rep, keep_src, keep_dst)


@SWEEP
@pytest.mark.parametrize("name", ["ring allreduce", "mesh allreduce", "broadcast", "hm allreduce"])
def test_no_wrong_merge_survives(name: str, most: int) -> None:
    """Any two primitives of an owner and chunk merged: refused, or right all the same."""
    p = lowered(SMALL[name])
    refused = 0
    for into, member in few(merges(p), most):
        wrong = merged(p, into, member)
        plan = made(partial(planned, wrong))
        if plan is None or verdict(plan) is not None:
            refused += 1
        else:
            assert works(plan), f"{member} into {into}"
    assert refused > 0 or name == "broadcast"  # there all puts of a value may be one
