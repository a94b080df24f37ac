"""packets and one_shot: what they make, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir import primitives as primitives_ir
from hccc.ir.choices import PlanProtocol
from hccc.ir.collective import OpType
from hccc.ir.primitives import Buffer, Primitives, Transport
from hccc.passes.fuse import fuse
from hccc.passes.one_shot import one_shot
from hccc.passes.packets import packets
from tests.emit import plans
from tests.passes.textbook import SMALL, lowered, mesh_allreduce, shapes


def made(name: str) -> Primitives:
    return packets(lowered(SMALL[name], Transport.STAGED), Transport.DIRECT)


@pytest.mark.parametrize("name", SMALL)
def test_primitives_stay_sound(name: str) -> None:
    p = made(name)
    fused = fuse(p)
    for one in (p, fused, one_shot(fused)):
        assert one.protocol is PlanProtocol.LL and primitives_ir.check(one) == []


def test_own_data_goes_first() -> None:
    """Each rank sends what it has before it waits for anything of others."""
    p = fuse(_mesh(4), "full")
    waits = np.zeros(len(p), np.bool_)
    waits[p.src.owner()[p.src.buffer == Buffer.QUEUE]] = True
    for rank in range(4):
        of = waits[p.owner == rank]
        assert (np.diff(of.astype(int)) >= 0).all() and of.any() and not of.all()


def _mesh(n: int) -> Primitives:
    return packets(lowered(mesh_allreduce(n), Transport.STAGED), Transport.DIRECT)


def test_two_shots_become_one() -> None:
    two = fuse(_mesh(4))
    assert shapes(two) == {(1, 1): 24, (4, 4): 4}  # 12 sends, 12 receives
    one = one_shot(two)
    assert shapes(one) == {(1, 3): 16, (4, 1): 16}
    assert len(one.queues) == 12 and one.queues.length.tolist() == [4] * 12
    sums = np.flatnonzero(one.src.counts() == 4)
    assert one.final[sums].all() and one.final.sum() == 16


def test_the_order_of_terms_stays() -> None:
    """Every rank adds the ranks' terms in the order in which the program's one rank does."""
    two = fuse(_mesh(4))
    one = one_shot(two)

    def order(p: Primitives, i: int) -> list[int]:
        entries = range(int(p.src.ptr[i]), int(p.src.ptr[i + 1]))
        queued = p.src.buffer == Buffer.QUEUE
        return [
            int(p.queues.src[p.src.rank[k]]) if queued[k] else int(p.src.rank[k]) for k in entries
        ]

    of_chunk = {
        int(two.chunk[i]): order(two, i) for i in np.flatnonzero(two.src.counts() == 4).tolist()
    }
    sums = np.flatnonzero(one.src.counts() == 4).tolist()
    assert len(of_chunk) == 4 and len({tuple(o) for o in of_chunk.values()}) == 4
    assert all(order(one, i) == of_chunk[int(one.chunk[i])] for i in sums)


@pytest.mark.parametrize("make", [plans.ring_allreduce, plans.ring_allgather])
def test_other_forms_stay_as_they_are(make: object) -> None:
    p = fuse(
        packets(lowered(make(4), Transport.STAGED), Transport.DIRECT)  # type: ignore[operator]
    )
    assert one_shot(p) is p


def refused(**options: object) -> str:
    program = plans.hierarchical_mesh(2, 2)
    with pytest.raises(UserError) as error:
        driver.compile_program(program, Options(protocol="ll", **options))  # type: ignore[arg-type]
    assert error.value.problem.code == "E323" and error.value.problem.help
    return error.value.problem.message


def test_what_it_cannot_do_is_said() -> None:
    assert "memory domains" in refused()
    assert "--transport staged" in refused(transport=Transport.STAGED)
    on_one_host = Options(protocol="ll", transport=Transport.DIRECT)
    plan = driver.compile_program(plans.hierarchical_mesh(2, 2), on_one_host).plan
    assert plan.protocol is PlanProtocol.LL and not plan.memory_domain.any()


def test_plans_say_so_in_files() -> None:
    plan = driver.compile_program(plans.mesh_allreduce(4), Options(protocol="ll")).plan
    text = plan_json.dumps(plan)
    again = plan_json.loads(text)
    assert again.protocol is PlanProtocol.LL and again.max_bytes == plan.max_bytes == 64 << 10
    assert plan_json.dumps(again) == text
    for old, new, said in (
        ('"max_bytes": 65536', '"max_bytes": 0', "max_bytes"),
        ('"protocol": "ll"', '"protocol": "simple"', "max_bytes"),
        ('"max_window": 1', '"max_window": 2', "max_window"),
        ('"transport": "staged"', '"transport": "mixed"', "transport"),
        ('"memory_domain": [0,0,0,0]', '"memory_domain": [0,0,0,1]', "memory domain"),
        ('"credit_flag": [0,', '"credit_flag": [1,', "no flags"),
    ):
        assert old in text
        with pytest.raises(UserError, match=said):
            plan_json.loads(text.replace(old, new))


def test_a_sum_that_a_rank_gets_twice_stays() -> None:
    rows = [(1, 0, 0, 0, 1), (0, 1, 1, 0, 0), (0, 1, 2, 0, 0)]
    twice = plans.program("twice", OpType.ALLREDUCE, 2, [(*r[:4], 0, r[4]) for r in rows], chunks=1)
    p = fuse(packets(lowered(twice, Transport.STAGED), Transport.DIRECT))
    assert one_shot(p) is p
    assert driver.compile_program(twice, Options(protocol="ll")).proofs
