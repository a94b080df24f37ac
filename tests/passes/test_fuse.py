"""fuse merges exactly where it may, and a wrong merge does not get through."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hccc.ir import primitives as primitives_ir
from hccc.ir.choices import Fusion
from hccc.ir.collective import OpType
from hccc.ir.primitives import Buffer, Primitives, Transport
from hccc.passes import fuse as fuse_module
from hccc.passes.contract import contract
from hccc.passes.depend import depend
from hccc.passes.fuse import fuse
from hccc.passes.hpds import hpds
from hccc.passes.limit_window import limit_window
from hccc.passes.lower import lower
from hccc.passes.queue_order import reordered, used_twice
from hccc.passes.verify import verify
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
    assert all(fuse(p, level) is p for level in (*Fusion, "auto"))


@pytest.mark.parametrize("level", [*Fusion, "auto"])
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
    """A merged primitive would read rank 1 after rank 2's piece has overwritten it."""
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
    """Lists every merge of two primitives of one owner and chunk: (head, member)."""
    same = (p.owner[:, None] == p.owner) & (p.chunk[:, None] == p.chunk)
    return [(int(a), int(b)) for a, b in np.argwhere(same) if a != b]


def merged(p: Primitives, into: int, member: int) -> Primitives:
    """Merges `member` into `into` as fuse would: a chain, a multi-put, or a result's put."""
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


def mixed(name: str, gpus: int = 2, network: str = "slots") -> Primitives:
    """Makes the primitives of a small program on nodes of `gpus` ranks."""
    p = replace(SMALL[name], gpus_per_node=gpus)
    return lower(hpds(depend(verify(p))), Transport.AUTO, network)


def kinds(p: Primitives) -> set[tuple[int, int, int, int]]:
    """Returns each primitive's (memory sources, messages taken, places written, messages sent)."""
    n, queue = len(p), Buffer.QUEUE
    columns = []
    for o in (p.src, p.dst):
        sent = np.bincount(o.owner()[o.buffer == queue], minlength=n)
        columns += [o.counts() - sent, sent]
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_a_mixed_primitive_reduces_memory_and_a_message_into_both() -> None:
    found = kinds(fuse(mixed("hm allreduce"), "full"))
    assert any(min(kind) > 0 and kind[0] > 1 and kind[2] > 1 for kind in found), found


@pytest.mark.parametrize("network", ["slots", "put"])
@pytest.mark.parametrize("level", [*Fusion, "auto"])
@pytest.mark.parametrize("name", SMALL)
def test_mixed_invariants_and_result(name: str, level: str, network: str) -> None:
    for gpus in (1, 2):
        if SMALL[name].collective.n_ranks % gpus == 0:
            p = fuse(mixed(name, gpus, network), level)
            assert primitives_ir.check(p) == []
            assert not used_twice(p.src) and not used_twice(p.dst)
            assert reordered(p) is not None  # one slot is enough for a window of one
            plan = planned(p)
            assert verdict(limit_window(plan)) is None
            assert works(limit_window(plan), micro_batches=3)


@pytest.mark.parametrize("name", SMALL)
def test_auto_runs_with_every_window(name: str) -> None:
    if SMALL[name].collective.n_ranks % 2 == 0:
        assert limit_window(planned(fuse(mixed(name), "auto"))).max_window == 0
