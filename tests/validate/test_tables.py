"""Expected tables match the plan, and both sides of a record have one layout."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import hccc
from hccc.ir.primitives import Buffer, Transport
from hccc.validate import tables
from hccc.validate.recording import WORDS, RecordingOutcome
from hccc.validate.tables import (
    COLUMNS,
    CONSTANTS,
    OF_PRIMITIVES,
    PACKETS_IN,
    PACKETS_OUT,
    RECV,
    SEND,
    SEND_FAR,
    expected,
)
from tests.emit import plans
from tests.validate.conftest import TRANSPORTS

HEADERS = Path(next(iter(hccc.__path__))) / "validate" / "include" / "hccc"


def names_of(header: str, begin: str, end: str) -> list[str]:
    """Returns the identifiers between two places of a header, lower case, without `hccc_`."""
    text = re.sub(r"//[^\n]*", "", (HEADERS / header).read_text())
    inside = text[text.index(begin) + len(begin) :]
    found = re.findall(r"[A-Za-z_]\w*", inside[: inside.index(end)])
    return [name.lower().removeprefix("hccc_") for name in found]


def test_tables_have_one_order() -> None:
    found = names_of("recorder.h", "enum hccc_table_name {", "}")
    assert found == [*COLUMNS, "tables"]


def test_outcomes_are_the_same() -> None:
    found = names_of("recorder.h", "enum hccc_outcome {", "}")
    assert found == [outcome.name.lower() for outcome in RecordingOutcome][1:]


def test_words_are_the_same() -> None:
    found = names_of("recorder.h", "struct hccc_shared {", "hccc_table table")
    assert [name for name in found if name != "long"] == list(WORDS)


def test_constants_are_the_same() -> None:
    found = names_of("device.h", "hccc_constants[] = {", "}")
    assert found == list(CONSTANTS)


def test_kinds_of_operands_are_the_same() -> None:
    text = (HEADERS / "device.h").read_text()
    begin = text.index("#define HCCC_OPERAND_KINDS")
    kinds = re.findall(r"KIND\((hccc_\w+)", text[begin : text.index("#define HCCC_KIND(")])
    assert kinds[: Buffer.QUEUE] == [f"hccc_{Buffer(b).name.lower()}" for b in range(Buffer.QUEUE)]
    packets = ["hccc_packets_in", "hccc_packets_out"]
    assert kinds[RECV:] == ["hccc_recv", "hccc_send", "hccc_send_far", *packets]
    assert (RECV, SEND, SEND_FAR, PACKETS_IN, PACKETS_OUT) == (4, 5, 6, 7, 8)


def test_every_number_of_a_plan_is_expected() -> None:
    """Each column of a Plan that a kernel executes is in a table, row for row."""
    for transport in TRANSPORTS[:2]:
        plan = plans.compiled(plans.ring_allreduce(4, channels=2), transport=transport)
        rows = expected(plan)
        assert rows.keys() == COLUMNS.keys()
        assert all(r.shape[1:] == (len(COLUMNS[n]),) for n, r in rows.items())
        heads = rows["primitives"]
        assert np.array_equal(heads[:, 0], plan.rank_of())
        assert np.array_equal(heads[:, 4], plan.chunk)
        sums = {name: heads[:, column].sum() for name, column in OF_PRIMITIVES.items()}
        assert sums == {name: len(rows[name]) for name in OF_PRIMITIVES}
        last = np.r_[heads[1:, 2] == 0, True]
        assert np.array_equal(heads[last, 2] + 1, np.diff(plan.tb_ptr))


def test_messages_name_their_queue_at_its_receiver() -> None:
    plan = plans.compiled(plans.ring_allreduce(4), transport=Transport.STAGED)
    found = expected(plan)["sources"]
    messages = found[found[:, 0] == RECV]
    assert len(messages) and (messages[:, 1] < np.bincount(plan.queues.dst).max()).all()
    assert set(messages[:, 5]) <= set(plan.queues.data_flag.tolist())


def test_names_that_a_dispatcher_knows() -> None:
    plan = plans.compiled(plans.ring_allreduce(4))
    moves = plans.compiled(plans.ring_allgather(4))
    assert tables.entries(plan)[0] == tables.ENTRY == tables.entries(moves)[0]
    asked = dict(zip(tables.queries(moves), expected(moves)["names"][:, 0].tolist(), strict=True))
    assert asked["bfloat16", None] == asked["float16", "sum"] == tables.LAUNCHED
    assert asked["", "sum"] == asked["float", None] == tables.BAD_ARGUMENT
