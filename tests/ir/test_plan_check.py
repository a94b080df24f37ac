"""Plans made in memory: header values that the schema never saw, and limits of generated code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir import plan_check, plan_json
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands, Transport, put_places
from tests.ir.test_plan_json import _text
from tests.passes.textbook import gather, lowered, planned

GPU_BODY = Path(__file__).parents[2] / "runtime" / "include" / "hccc" / "gpu_body.h"


def plan() -> Plan:
    """Returns the plan of a ring of eight ranks."""
    return plan_json.loads(_text("ring_allreduce", Transport.DIRECT))


def complaint(broken: Plan) -> tuple[str, str]:
    """Returns the code and the text of the fault found."""
    with pytest.raises(UserError) as caught:
        plan_check.check(broken)
    return caught.value.problem.code, caught.value.problem.message


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("max_window", -1, "max_window: -1 is not in 0..2147483647"),
        ("max_window", 2**31, "max_window: 2147483648"),
        ("grain", 1023, "grain: 1023 is not in 1024..1073741824"),
        ("grain", 2**30 + 1, "grain: 1073741825"),
        ("channels", 65, "channels: 65 is not in 1..64"),
        ("warps", 33, "warps: 33"),
        ("queue_slots", 1 << 17, "queue_slots: 131072"),
        ("gpus_per_node", 0, "gpus_per_node: 0"),
    ],
)
def test_header_values(field: str, value: int, wanted: str) -> None:
    changes: dict[str, Any] = {field: value}
    code, message = complaint(replace(plan(), **changes))
    assert code == "E310" and wanted in message


def test_a_collective_without_a_root_has_root_0() -> None:
    made = plan()
    rooted = replace(made, collective=replace(made.collective, root=1))
    assert complaint(rooted) == ("E310", "collective.root: 1 is not in 0..0")


def test_a_root_is_a_rank() -> None:
    made = plan()
    wrong = replace(made, collective=replace(made.collective, op=OpType.BROADCAST, root=8))
    assert complaint(wrong) == ("E310", "collective.root: 8 is not in 0..7")


def test_an_in_place_call_finds_what_a_rank_has_itself() -> None:
    """So that many receive slots need no write, and no more."""
    made = replace(planned(lowered(gather(4))), out_of_place=False)
    plan_check.check(made)
    twice = replace(made.collective, n_chunks=8)
    code, message = complaint(replace(made, collective=twice))
    assert code == "E315" and "8 receive slots, but only 6 writes to one" in message


def test_a_copy_has_one_source() -> None:
    made = plan_json.loads(_text("ring_allgather", Transport.DIRECT))
    src = made.src
    ptr = src.ptr + (np.arange(len(src.ptr)) > 0)
    again = Operands(ptr, *(np.insert(x, 0, x[0]) for x in (src.rank, src.buffer, src.slot)))
    code, message = complaint(replace(made, src=again))
    assert code == "E312" and "src: primitive 0: several sources" in message


def test_chunks_of_a_custom_collective_are_limited() -> None:
    made, most = plan(), 1 << 20
    custom = replace(made.collective, op=OpType.CUSTOM, n_chunks=most)
    plan_check.check(replace(made, collective=custom))
    code, message = complaint(replace(made, collective=replace(custom, n_chunks=most + 8)))
    assert code == "E315" and f"collective.n_chunks: {most + 8} is more than {most}" in message


def test_operands_of_a_primitive_are_limited() -> None:
    made = plan()
    many, row = plan_check.MAX_OPERANDS, 5
    ptr = made.src.ptr.copy()
    ptr[row + 1 :] += many - int(made.src.counts()[row])
    pick = np.repeat(made.src.ptr[:-1], np.diff(ptr))
    src = Operands(ptr, made.src.rank[pick], made.src.buffer[pick], made.src.slot[pick])
    code, message = complaint(replace(made, src=src))
    assert code == "E316" and f"primitive 5: {many + 1} sources and destinations" in message
    assert f": {many})" in GPU_BODY.read_text(), "kernels have room for so many addresses"


def test_thread_blocks_of_a_rank_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(plan(), channels=64)
    n = int(made.n_tb.max())
    monkeypatch.setattr(plan_check, "MOST_BLOCKS", 64 * n)
    plan_check.check(made)
    monkeypatch.setattr(plan_check, "MOST_BLOCKS", 64 * n - 1)
    code, message = complaint(made)
    assert code == "E316" and f"n_tb: {n} thread blocks in 64 channels" in message


def test_slots_of_a_rank_are_ints() -> None:
    slots = np.full(8, 2**30)
    code, message = complaint(replace(plan(), scratch_slots=slots, stage_slots=slots))
    assert code == "E316" and "scratch_slots: 2147483648 with stage_slots" in message
    assert complaint(replace(plan(), scratch_slots=slots, stage_slots=slots - 1))[0] == "E315"


def mixed(name: str) -> Plan:
    """Returns a direct plan of eight ranks relabelled as mixed, on two memory domains."""
    made = plan_json.loads(_text(name, Transport.DIRECT))
    return replace(made, transport=Transport.MIXED, memory_domain=np.arange(8) // 4)


def test_ranks_of_a_direct_plan_are_in_one_domain() -> None:
    code, message = complaint(replace(mixed("ring_allreduce"), transport=Transport.DIRECT))
    assert code == "E311" and "domain 0" in message
    code, message = complaint(replace(plan(), memory_domain=np.full(8, 8)))
    assert code == "E311" and "memory_domain[0]: 8 is not in 0..7" in message


def test_nothing_is_read_out_of_another_domain() -> None:
    code, message = complaint(mixed("ring_allreduce"))
    assert code == "E318" and "reads memory of another memory domain" in message


def test_a_network_put_has_a_place_of_its_own() -> None:
    """A copy's is its source, which must be its rank's."""
    made = mixed("direct_alltoall")
    plan_check.check(made)
    i = int(made.dst.owner()[made.network_puts()][0])
    away = made.src.rank.copy()
    away[made.src.ptr[i]] = (int(made.rank_of()[i]) + 1) % 4  # of the same domain
    code, message = complaint(replace(made, src=replace(made.src, rank=away)))
    assert code == "E318" and f"primitive {i}" in message and "no place" in message


def test_a_put_is_carried_from_the_first_place_of_its_rank() -> None:
    out, queue = int(Buffer.OUTPUT), int(Buffer.QUEUE)
    src = Operands(np.arange(3), np.array([3, 3]), np.full(2, out), np.zeros(2, np.int32))
    rank, buffer = np.array([4, 4, 7, 5, 7]), np.array([out, out, out, queue, out])
    dst = Operands(np.array([0, 3, 5]), rank, buffer, np.zeros(5, np.int32))
    owner, of_src, of_dst = np.array([4, 5]), np.array([1, 2]), np.array([10, 11, 12, 13, 14])
    assert put_places(src, dst, owner, of_src, of_dst).tolist() == [10, 2]


def test_auto_is_no_transport_of_a_plan() -> None:
    assert complaint(replace(plan(), transport=Transport.AUTO))[0] == "E310"


def test_network_queues_join_two_domains() -> None:
    staged = plan_json.loads(_text("ring_allreduce", Transport.STAGED))
    split = replace(staged, memory_domain=np.arange(8) // 4)
    q, network = split.queues, split.network_queues()
    assert set(zip(q.src[network].tolist(), q.dst[network].tolist(), strict=True)) == {
        (3, 4),
        (7, 0),
    }
    assert not split.network_puts().any()
