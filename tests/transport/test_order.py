"""The promise of network.h: all bytes arrive before their counter, in any order of submission."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transport.conftest import TURN
from tests.transport.ends import LINE, EndProcess, Message

SIZES = st.one_of(st.just(0), st.integers(1, 300), st.integers(1, 20_000), st.integers(1, 1 << 20))
BLOCKS = st.sampled_from([(0, 0), (0, 1), (1, 0), (7, 3), (-1, 0)])
FACTS = st.tuples(SIZES, BLOCKS, st.booleans(), st.integers(0, 2**31), st.integers(0, 40))


def lay_out(facts: list[tuple[int, tuple[int, int], bool, int, int]]) -> list[Message]:
    """Messages behind each other with gaps, each with its block's counter or none; at last one of
    the rank, after which all have arrived."""
    messages: list[Message] = []
    place = 0
    for i, (size, (tb, channel), counts, seed, gap) in enumerate(facts):
        counter = LINE * (8 * (tb + 1) + channel) if counts else -1
        messages.append(Message(seed, place + gap, size, tb, channel, counter, i + 1))
        place += gap + size
    return [*messages, Message(0, place, 0, -1, 0, 0, len(facts) + 1)]


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(facts=st.lists(FACTS, max_size=12), back=st.lists(FACTS, max_size=3))
def test_counters_come_after_their_bytes(
    pair: list[EndProcess],
    facts: list[tuple[int, tuple[int, int], bool, int, int]],
    back: list[tuple[int, tuple[int, int], bool, int, int]],
) -> None:
    there, here = lay_out(facts), lay_out(back)
    for process in pair:
        process.call("clear")
    turns = [process.call("turn_now") for process in pair]
    pair[0].call("send", 1, there)
    pair[1].call("send", 0, here)
    for process, messages in ((pair[1], there), (pair[0], here)):
        assert process.call("expect", messages) == []
    for process, turn, messages in zip(pair, turns, (there, here), strict=True):
        assert process.call("completed", turn + len(messages)) >= 0
        assert process.call("failed") == []


def test_turns_pass_two_to_the_32(pair: list[EndProcess]) -> None:
    for process in pair:
        process.call("clear")
    turn = pair[0].call("turn_now")
    messages = [Message(i, 64 * i, 64, i % 3, 0, LINE * (i % 3 + 1), i + 1) for i in range(200)]
    pair[0].call("send", 1, messages)
    assert pair[1].call("expect", messages) == []
    assert pair[0].call("completed", turn + 200) == (turn + 200) % 2**32
    assert (turn + 200) % 2**32 < TURN
