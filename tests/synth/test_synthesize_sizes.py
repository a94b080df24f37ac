"""synthesize_sizes: few programs, of which every size has one that was weighed for it."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hccc
from hccc import SizesSynthesis, UserError
from hccc.base.diagnostics import Source
from hccc.driver.compiled import CompiledProgram
from hccc.driver.inputs import parse_cluster
from hccc.driver.options import Options
from hccc.driver.tune.sizes import parsed
from hccc.ir.collective import OpType
from hccc.lang.transfer import load as transfer
from hccc.passes.verify import verify
from hccc.synth.candidates import Candidate, methods
from hccc.synth.shortlist import COMPILED, shortlist
from hccc.synth.synthesis import program_text, slug
from hccc.synth.synthesize import synthesize_sizes
from tests.marks import slow
from tests.synth.greedy.chunked_clusters import SMALL as TEXT

SMALL = parse_cluster(Source("small", TEXT))
SIZES = "1K..256M"
OPS = [OpType.ALLREDUCE, slow(OpType.ALLGATHER), slow(OpType.ALLTOALL), slow(OpType.BROADCAST)]
EACH = pytest.mark.parametrize("op", OPS)


@cache
def made(op: OpType, plans: int = 4) -> SizesSynthesis:
    return synthesize_sizes(SMALL, op, SIZES, options=Options(plans=plans))


@pytest.mark.slow
@EACH
def test_every_size_has_a_program_of_those_weighed(op: OpType) -> None:
    one = made(op)
    assert one.sizes == parsed(SIZES) and not one.interrupted
    assert 1 <= len(one.chosen) <= 4 and set(one.choice) == set(range(len(one.chosen)))
    for k, at in enumerate(one.at):
        times = [w.time for w in at.weighed if w.time is not None]
        assert times == sorted(times) and at.best is at.weighed[0]
        took = one.chosen_at(k).time
        assert took is not None and took <= 1.5 * times[0]
        assert 0 < one.share(k) <= at.share() <= 1 + 1e-9


@pytest.mark.slow
@EACH
def test_spans_are_where_a_program_is_chosen(op: OpType) -> None:
    one = made(op)
    for number, chosen in enumerate(one.chosen):
        mine = [s for s, c in zip(one.sizes, one.choice, strict=True) if c == number]
        spans = [s for s in one.sizes for low, high in chosen.spans if low <= s <= high]
        assert spans == mine
        assert verify(chosen.program).collective.op is op
        assert re.fullmatch(r"[A-Za-z0-9-]+\.rccl", chosen.file_name())


@pytest.mark.slow
@EACH
def test_the_text_is_the_program_and_says_what_it_is_for(op: OpType) -> None:
    one = made(op)
    for chosen in one.chosen:
        text = program_text(one, chosen)
        read = transfer.parse(Source("x.rccl", text))
        assert read.collective == chosen.program.collective and read.name == chosen.program.name
        assert f"for calls of {chosen.serves()}." in text and f"Method: {chosen.name}; seed" in text
        assert text.count("no schedule takes less") == one.choice.count(one.chosen.index(chosen))


@pytest.mark.slow
def test_one_program_for_all_sizes_is_weighed_at_all() -> None:
    one = made(OpType.ALLREDUCE, 1)
    assert one.choice == (0,) * len(one.sizes)
    assert all(one.chosen_at(k).time is not None for k in range(len(one.sizes)))


@pytest.mark.slow
def test_facts_say_the_same() -> None:
    one = made(OpType.ALLREDUCE)
    facts = one.facts()
    sizes, programs = facts["sizes"], facts["programs"]
    assert isinstance(sizes, list) and isinstance(programs, list)
    assert [row["size"] for row in sizes] == list(one.sizes)
    assert {row["method"] for row in sizes} == {row["method"] for row in programs}


@pytest.mark.slow
def test_the_programs_are_one_library() -> None:
    compiled = hccc.compile(made(OpType.ALLREDUCE).programs, Options(sizes=SIZES), cluster=SMALL)
    assert isinstance(compiled, CompiledProgram) and compiled.tuned is not None
    assert compiled.plan.collective.op is OpType.ALLREDUCE


def test_the_api_checks_what_it_is_given() -> None:
    refused = (
        ({"sizes": "1K..x"}, "E410"),
        ({"root": 3}, "E410"),
        ({"method": "best"}, "E451"),
        ({"collective": "allgathr"}, "E465"),
    )
    for wrong, code in refused:
        given = {"collective": "allgather", **wrong}
        with pytest.raises(UserError) as error:
            hccc.synthesize_sizes(SMALL, **given)  # type: ignore[arg-type]
        assert error.value.problem.code == code
    one = hccc.synthesize_sizes(SMALL, "allgather", "64K", method="ring")
    assert one.sizes == (1 << 16,) and [c.name for c in one.chosen] == ["ring"]


NAMES = st.sampled_from([*methods(OpType.ALLREDUCE), "greedy, 2 chunks", "greedy, 4 chunks"])


@pytest.mark.slow
@settings(deadline=None)  # the first example makes the program
@given(st.lists(st.tuples(NAMES, st.floats(1, 1e6)), max_size=12))
def test_few_are_compiled_and_of_each_method_the_least(pairs: list[tuple[str, float]]) -> None:
    program = made(OpType.ALLREDUCE).programs[0]
    found = [Candidate(name, program, estimate) for name, estimate in pairs]
    near = shortlist(found)
    assert len(near) <= COMPILED and bool(near) == bool(found)
    for one in found:
        alike = [w for w in near if w.name == one.name]
        assert one in near or all(w.estimate <= one.estimate for w in alike)
    if found:
        assert min(one.estimate for one in found) == near[0].estimate


@given(st.text(max_size=80), st.sampled_from("-_"))
def test_names_of_files_are_letters_and_digits(method: str, between: str) -> None:
    assert re.fullmatch(rf"[a-z0-9{between}]{{1,48}}", slug(method, between))
