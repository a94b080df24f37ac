"""The text of kernels of protocol LL, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.ir.kernel_shape import kernel_shape, packet_slots
from hccc.ir.plan import Plan
from tests.emit import plans
from tests.emit.plans import Golden


def made(n: int, fuse: str = "auto") -> Plan:
    return driver.compile_program(plans.mesh_allreduce(n), Options(protocol="ll", fuse=fuse)).plan


@pytest.mark.parametrize("fuse", ["auto", "full"])
def test_packets_golden(golden: Golden, fuse: str) -> None:
    golden({"auto": "one-shot", "full": "two-shot"}[fuse], source.cpu(made(4, fuse)))


def test_text_does_not_grow_with_ranks() -> None:
    """Slots are numbered alike at all ranks."""
    small, large = (source.cpu(made(n, "full")) for n in (8, 16))
    assert large.count("hccc_packets_in") <= 2 * small.count("hccc_packets_in") + 1


def test_slots_are_once_for_each_message() -> None:
    plan = made(5)
    first, slots = packet_slots(plan)
    taken = [set[int]() for _ in range(5)]
    for q in range(len(plan.queues)):
        mine = set(range(int(first[q]), int(first[q] + plan.queues.length[q])))
        rank = int(plan.queues.dst[q])
        assert not taken[rank] & mine
        taken[rank] |= mine
    assert [len(t) for t in taken] == slots.tolist() == [20] * 5
    assert all(max(t) == 19 for t in taken)
    shape = kernel_shape(plan)
    assert (shape.packets, shape.queues) == (20, 0)
    assert 56 * shape.lines >= (64 << 10) / 5


@pytest.mark.parametrize("emit", [source.cuda, source.hip])
def test_gpus_have_the_same_calls(emit: Callable[[Plan], str]) -> None:
    """What differs between targets is around the program."""

    def program(text: str) -> str:
        return text[text.index("// Thread block") : text.index("HCCC_FN int hccc_neighbour(")]

    plan = made(4)
    assert program(emit(plan)) == program(source.cpu(plan))
