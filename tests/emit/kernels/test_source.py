"""The emitted text: goldens, growth, stability, and names that come from outside."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hccc.base.diagnostics import InternalError
from hccc.emit.kernels import source
from hccc.ir.primitives import Operands, Transport
from hccc.ir.transport import PURE
from tests.emit import plans
from tests.emit.kernels.test_compile import CASES

GOLDEN = {
    "ring": plans.compiled(plans.ring_allreduce(4)),
    "staged_ring": plans.compiled(plans.ring_allgather(4), transport=Transport.STAGED),
    "mesh": plans.compiled(plans.mesh_allreduce(4)),
    "star": plans.compiled(plans.broadcast(4)),
    "hierarchical": plans.compiled(plans.hierarchical_mesh(2, 2), level="none"),
    "switched": plans.switched(plans.mesh_allreduce(4)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, golden: plans.Golden) -> None:
    golden("cuda", source.cuda(GOLDEN[name]))
    golden("cpu", source.cpu(GOLDEN[name]))


def test_hip_golden(golden: plans.Golden) -> None:
    golden("hip", source.hip(plans.compiled(plans.ring_allreduce(4))))


@pytest.mark.parametrize("transport", list(PURE))
def test_text_grows_with_the_pattern_not_with_ranks(transport: Transport) -> None:
    sizes = [
        len(source.cuda(plans.compiled(plans.ring_allreduce(n), transport=transport)))
        for n in (8, 64)
    ]
    assert sizes[1] < sizes[0] * 1.05


@pytest.mark.parametrize("level", ["none", "full"])
def test_the_papers_algorithm_stays_small(level: str) -> None:
    plan = plans.compiled(plans.hierarchical_mesh(4, 8), level=level)
    assert len(source.cuda(plan)) < 20_000


def test_many_calls_go_out_of_line() -> None:
    few = plans.compiled(plans.mesh_allreduce(4))
    many = plans.compiled(plans.hierarchical_mesh(8, 4), level="none")
    assert "#define HCCC_INLINE 1" in source.cuda(few)
    assert "#define HCCC_INLINE 0" in source.cuda(many)


def test_nothing_is_interpreted() -> None:
    text = source.cuda(plans.compiled(plans.ring_allreduce(8)))
    assert "table" not in text and text.count("switch") == 1


def test_same_plan_same_text() -> None:
    texts = {source.cuda(plans.compiled(plans.hierarchical_mesh(2, 4))) for _ in range(2)}
    assert len(texts) == 1


def test_entries_hold_calls_to_what_was_proved() -> None:
    plan = plans.compiled(plans.ring_allgather(2))
    assert "narrowed" not in source.cpu(plan) and "call->in_place)" not in source.cpu(plan)
    bound = source.cpu(replace(plan, max_window=3, in_place=False))
    assert "narrowed.window = 3;" in bound
    assert "if (call && call->in_place) return HCCC_BAD_ARGUMENT;" in bound


def test_operands_beyond_two_for_every_rank_are_told() -> None:
    plan = plans.compiled(plans.ring_allgather(2))
    assert "HCCC_OPERANDS" not in source.cuda(plan)
    wide = np.repeat(plan.dst.ptr[:-1], np.diff(plan.dst.ptr) + 8)
    dst = Operands(
        plan.dst.ptr + 8 * np.arange(len(plan) + 1),
        plan.dst.rank[wide],
        plan.dst.buffer[wide],
        plan.dst.slot[wide],
    )
    assert "#define HCCC_OPERANDS 10\n" in source.cuda(replace(plan, dst=dst))


@pytest.mark.parametrize(("length", "most"), [(127, 0), (128, 2**24 - 1), (10**6, 2147)])
def test_windows_are_narrowed_where_counters_would_pass_each_other(length: int, most: int) -> None:
    plan = plans.compiled(plans.ring_allgather(2), transport=Transport.STAGED)
    queues = replace(plan.queues, length=np.full(len(plan.queues), length))
    long = replace(plan, queues=queues)
    assert long.largest_window == most and replace(long, max_window=3).largest_window == 3
    assert ("narrowed.window = " in source.cpu(long)) == bool(most)
    assert f"narrowed.window = {most};" in source.cpu(long) or not most


@pytest.mark.parametrize("name", ["", "1x", "a-b", "a b", "a\nb", "../x", "ä", "x" * 500, "a\n"])
def test_a_name_that_is_no_identifier_is_a_bug(name: str) -> None:
    plan = replace(plans.compiled(plans.ring_allgather(2)), name=name)
    with pytest.raises(InternalError, match="identifier"):
        source.cuda(plan)


@pytest.mark.parametrize(
    "name", ["x.rccl\n#error", "*/ int x; /*", "a\\", "/home/me/secret/x.rccl", "a\r#b", "x" * 999]
)
def test_source_names_cannot_leave_their_comment(name: str) -> None:
    plan = plans.compiled(plans.ring_allgather(2))
    plain = source.cuda(replace(plan, source="S")).splitlines()
    lines = source.cuda(replace(plan, source=name)).splitlines()
    assert len(lines) == len(plain)
    for line, other in zip(lines, plain, strict=True):
        assert line == other or line.lstrip().startswith("//")
        assert not line.endswith("\\") and "secret" not in line and len(line) < 200


@pytest.mark.parametrize("case", CASES)
def test_primitives_are_numbered_in_the_order_of_their_block(case: str) -> None:
    """As they run, loops and all: an error or a trace names one by its number."""
    functions = source.cpu(CASES[case]).split("HCCC_WINDOWS(b) {")[1:]
    for function in functions:
        found: list[int] = []
        bodies = re.split(
            r"( for \(int i = 0; i < \d+; \+\+i\) \{\n.*?\n    \})", function, flags=re.S
        )
        for text in bodies:
            turns = re.match(r" for \(int i = 0; i < (\d+)", text)
            numbers = re.findall(r"hccc_prim<[^>]*>\(\s*b, ([i\d +*]+),", text)
            for i in range(int(turns[1]) if turns else 1):
                found += [eval(number, {"i": i}) for number in numbers]
        assert found == list(range(len(found))) and found
    assert sum("hccc_prim<" in function for function in functions) == len(functions)
