"""Hypothesis's reports to a reader: small programs, named mutations, plain words."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.ir.collective import Collective, OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import Program, same
from hccc.lang.transfer import load as transfer
from hccc.proofs.prove import check_plan
from hccc.testing import (
    MUTATIONS,
    assert_correct,
    collectives,
    correct_programs,
    is_correct,
    mutants,
    options,
    plans,
    text,
    wrong_programs,
)
from hccc.testing.grow import grow, program
from tests.health_checks import EVERY_CHECK

QUIET = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=EVERY_CHECK,
)


@pytest.mark.slow
@pytest.mark.parametrize("op", [OpType.BROADCAST, OpType.REDUCE, OpType.SENDRECV])
def test_the_simplest_program_is_two_ranks(op: OpType) -> None:
    p = find(correct_programs(op), lambda p: True, settings=QUIET)
    assert p.collective.n_ranks == 2
    assert p.collective.chunks_per_block == 1
    assert len(p) <= 2
    assert p.transfers["step"].max() <= 1


@pytest.mark.slow
def test_wrong_programs_shrink_to_a_few_lines() -> None:
    m = find(wrong_programs(), lambda m: m.mutation == "duplicate", settings=QUIET)
    assert len(m.original) <= 3
    assert not is_correct(m.program)


def test_a_relay_shrinks_to_three_ranks() -> None:
    def relayed(p: Program) -> bool:
        wanted = p.collective.target_of(p.transfers["chunk"].astype(int))
        return bool((p.transfers["dst"] != wanted).any())

    p = find(correct_programs(OpType.SCATTER), relayed, settings=QUIET)
    assert p.collective.n_ranks <= 3
    assert len(p) <= 6


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_makes_something_wrong(mutation: str) -> None:
    small = mutants(correct_programs(max_ranks=3, max_transfers=12))
    unshrunk = settings(QUIET, max_examples=600, phases=[Phase.generate])
    m = find(
        small, lambda m: m.mutation == mutation and not is_correct(m.program), settings=unshrunk
    )
    assert m.what.startswith("transfer(")


@settings(max_examples=40, deadline=None)
@given(correct_programs())
def test_programs_print_as_the_transfer_language(p: Program) -> None:
    assert same(transfer.parse(Source("random.rccl", text(p))), p)


@settings(max_examples=10, deadline=None)
@given(plans())
def test_plans_are_right(plan: Plan) -> None:
    assert {proof.name for proof in check_plan(plan)} == {"deadlock", "race", "result"}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arguments_are_kept(data: st.DataObject) -> None:
    c = data.draw(collectives(OpType.GATHER, max_ranks=4, max_chunks_per_block=2))
    assert c.op is OpType.GATHER and c.n_ranks <= 4 and c.chunks_per_block <= 2
    p = data.draw(correct_programs(c, extras=False))
    assert p.collective == c
    assert set(p.transfers["dst"].tolist()) == {c.root}


def test_without_choices_programs_are_stars() -> None:
    p = grow(Collective(OpType.BROADCAST, 4, 1), lambda _: 0)
    assert text(p).splitlines()[1:] == [
        "    transfer(0, 1, 0, 0, recv)",
        "    transfer(0, 2, 0, 0, recv)",
        "    transfer(0, 3, 0, 0, recv)",
    ]


def test_assert_correct_says_what_is_wrong_and_shows_the_program() -> None:
    c = Collective(OpType.BROADCAST, 3, 1)
    right = program(c, [(0, 1, 0, 0, 0), (1, 2, 1, 0, 0)], 3, 3)
    assert_correct(right)
    wrong = program(c, [(0, 1, 0, 0, 0), (1, 2, 0, 0, 0)], 3, 3)
    with pytest.raises(AssertionError) as caught:
        assert_correct(wrong)
    message = str(caught.value)
    assert "error[E204]" in message and "transfer(1, 2, 0, 0, recv)" in message
    assert message.rstrip().endswith("transfer(1, 2, 0, 0, recv)")
    assert 'OpType="Broadcast"' in message


@pytest.mark.parametrize("lie", [True, False])
def test_assert_correct_tells_when_verify_and_the_reference_disagree(
    monkeypatch: pytest.MonkeyPatch, lie: bool
) -> None:
    from hccc.testing import assertions

    c = Collective(OpType.BROADCAST, 2, 1)
    p = program(c, [(0, 1, 0, 0, 0)] if not lie else [(1, 0, 0, 0, 0)], 2, 2)
    monkeypatch.setattr(assertions, "is_correct", lambda _: lie)
    with pytest.raises(AssertionError, match="refuses a correct" if lie else "accepts a wrong"):
        assert_correct(p)


@pytest.mark.parametrize(
    "wanted",
    [
        (Transport.DIRECT, False, False),
        (Transport.STAGED, True, False),
        (Transport.MIXED, True, False),
        (Transport.MIXED, False, True),
    ],
)
def test_plans_of_every_transport_are_drawn(wanted: tuple[Transport, bool, bool]) -> None:
    """Direct, staged and mixed, with messages and with puts between memory domains."""

    def is_wanted(plan: Plan) -> bool:
        found = plan.transport, bool(len(plan.queues)), bool(plan.network_puts().any())
        return found == wanted

    how = settings(
        max_examples=1000,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=EVERY_CHECK,
        phases=(Phase.generate,),
    )
    assert is_wanted(find(plans(choices=options(prove=False)), is_wanted, settings=how))
