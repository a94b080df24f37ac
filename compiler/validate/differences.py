"""differences: describes the first difference between a recorded text and its Plan."""

from __future__ import annotations

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.validate import library_facts
from hccc.validate.recording import RecordingOutcome, TextRecording
from hccc.validate.tables import (
    COLUMNS,
    CONSTANTS,
    MODES,
    OF_PRIMITIVES,
    OPERAND,
    RECV,
    SEND,
    SEND_FAR,
    UNORDERED,
    Rows,
    entries,
    queries,
)

MANNERS = {
    RecordingOutcome.VARIES: "does not repeat in every window and channel what it does first",
    RecordingOutcome.OUTSIDE: "has a primitive outside the loop over windows",
    RecordingOutcome.LOOPS: "loops over the windows a second time",
    RecordingOutcome.LEFT: "leaves the loop over windows before its end",
}
KINDS = (
    "hccc_input",
    "hccc_output",
    "hccc_scratch",
    "hccc_stage",
    "hccc_recv",
    "hccc_send",
    "hccc_send_far",
    "hccc_packets_in",
    "hccc_packets_out",
)
MEMORY = 3  # columns of an operand that memory has
LEAST_OPERANDS = 254  # ranks from which HCCC_OPERANDS is 512 where it is not defined (gpu_body.h)


def difference(recording: TextRecording, wanted: Rows, plan: Plan) -> str | None:
    """Describes the first difference of the recording from the plan; None if there is none. O(P log
    P)."""
    message = _primitives(recording, wanted) or _manner(recording) or _missing(recording, wanted)
    if message is not None:
        return message
    for name in OF_PRIMITIVES:
        if (message := _lists(name, recording.rows[name], wanted)) is not None:
            return message
    message = _neighbours(recording, wanted) or _constants(
        recording.rows["constants"], wanted, plan
    )
    return message or _entry(recording, wanted, plan) or _more(recording)


def _primitives(recording: TextRecording, wanted: Rows) -> str | None:
    """Describes the first primitive present in both whose own numbers differ."""
    mine, theirs = wanted["primitives"], recording.rows["primitives"]
    shared = min(len(mine), len(theirs))
    row = _first(mine[:shared], theirs[:shared])
    if row is None:
        return None
    said, planned = theirs[row], mine[row]
    if (said[:2] != planned[:2]).any():
        return _extra(said) if tuple(said[:2]) < tuple(planned[:2]) else _lacking(planned)
    column = int(np.flatnonzero(said != planned)[0])
    if column == 2:
        return f"{_primitive(planned)}: the text numbers it {said[2]}"
    if column == 3:
        return _mismatch(_primitive(planned), "mode", _mode(int(said[3])), _mode(int(planned[3])))
    counted = {at: f"number of {name}" for name, at in OF_PRIMITIVES.items()}
    name = counted.get(column, "chunk of its block")
    return _mismatch(_primitive(planned), name, said[column], planned[column])


def _manner(recording: TextRecording) -> str | None:
    if recording.outcome not in MANNERS:
        return None
    rank, tb, channel = recording.at
    return f"rank {rank}, thread block {tb}, channel {channel}: {MANNERS[recording.outcome]}"


def _missing(recording: TextRecording, wanted: Rows) -> str | None:
    """Describes the first primitive that only one of the two has, where all others are equal."""
    mine, theirs = wanted["primitives"], recording.rows["primitives"]
    if len(theirs) < len(mine):
        return _lacking(mine[len(theirs)])
    return _extra(theirs[len(mine)]) if len(theirs) > len(mine) else None


def _lacking(planned: I4) -> str:
    return f"{_primitive(planned)}: the plan has it, the text has not"


def _extra(said: I4) -> str:
    return f"{_primitive(said)}: the text has it, the plan has not"


def _lists(name: str, theirs: I4, wanted: Rows) -> str | None:
    """Describes the first wait, operand or post that differs; the primitives are the plan's."""
    mine, heads = wanted[name], wanted["primitives"]
    owner = np.repeat(np.arange(len(heads)), heads[:, OF_PRIMITIVES[name]])
    if np.array_equal(mine, theirs):
        return None
    if len(mine) != len(theirs):  # of a process that wrote what it liked
        return f"the text records {len(theirs):,} {name}, the plan has {len(mine):,}"
    if name in UNORDERED:
        mine, theirs = _sorted(owner, mine), _sorted(owner, theirs)
    row = _first(mine, theirs)
    if row is None:
        return None
    at = int(row - np.searchsorted(owner, owner[row]))
    where = f"{_primitive(heads[owner[row]])}, {name[:-1]} {at}"
    return f"{where}: the text says {_item(name, theirs[row])}, the plan {_item(name, mine[row])}"


def _sorted(owner: I8, rows: I4) -> I4:
    """Sorts the rows of every owner. owner: i8[rows], ascending."""
    return rows[np.lexsort((*rows.T[::-1], owner))]


def _neighbours(recording: TextRecording, wanted: Rows) -> str | None:
    mine, theirs = wanted["neighbours"], recording.rows["neighbours"]
    theirs = theirs[np.lexsort(theirs.T[::-1])]
    if np.array_equal(mine, theirs):
        return None
    shared = min(len(mine), len(theirs))
    row = _first(mine[:shared], theirs[:shared])
    at = shared if row is None else row
    rank = min(int(rows[at, 0]) for rows in (mine, theirs) if at < len(rows))
    said, planned = (rows[rows[:, 0] == rank, 1].tolist() for rows in (theirs, mine))
    return _mismatch(f"rank {rank}", "neighbours", said, planned)


def _more(recording: TextRecording) -> str | None:
    """Describes a table that ran full, although the rows that it holds are the plan's."""
    if recording.outcome is not RecordingOutcome.MORE:
        return None
    return f"the text records more {recording.full} than the plan has"


def _constants(theirs: I4, wanted: Rows, plan: Plan) -> str | None:
    """Checks that the shape is the plan's and that the board of GPUs has room for every operand."""
    if len(theirs) != len(CONSTANTS):
        return "its constants are not recorded"
    values = dict(zip(CONSTANTS, theirs[:, 0].tolist(), strict=True))
    for name, planned in zip(CONSTANTS, wanted["constants"][:, 0].tolist(), strict=False):
        if values[name] != planned:
            return _mismatch("its shape", name, values[name], planned)
    ranks = plan.n_ranks
    room = values["operands"] or (2 * ranks + 4 if ranks < LEAST_OPERANDS else 512)
    needed = int((plan.src.counts() + plan.dst.counts()).max(initial=0))
    if room < needed:
        return f"HCCC_OPERANDS: room for {room} operands of a primitive, the plan has {needed}"
    if values["inline"] not in (0, 1):
        return f"HCCC_INLINE is {values['inline']}, neither 0 nor 1"
    return None


def _entry(recording: TextRecording, wanted: Rows, plan: Plan) -> str | None:
    """Checks the text around the kernels: the entry, the C header, the dispatcher."""
    if (row := _first(wanted["calls"], recording.rows["calls"])) is not None:
        return _cells("calls", "the entry", wanted["calls"][row], recording.rows["calls"][row])
    mine, theirs = wanted["reduction_texts"], recording.rows["reduction_texts"]
    if not np.array_equal(mine, theirs):
        said, planned = (bytes(rows[:, 0].astype(np.uint8)).decode() for rows in (theirs, mine))
        return _mismatch("its reductions of one's own", "operations", said, planned)
    tables = [("buffers", "the buffers in windows"), ("domains", "memory domains")]
    if len(recording.rows["shape"]):  # the header may be missing
        tables += [("shape", "the C header's shape"), ("user_blocks", "the C header")]
    for name, what in tables:
        rows = recording.rows[name]
        if (row := _first(wanted[name], rows)) is not None:
            return _cells(name, what, wanted[name][row], rows[row])
    rows = recording.rows["names"]
    if len(rows) and (row := _first(wanted["names"], rows)) is not None:
        asked = "the dispatcher, asked for {} and {}".format(*queries(plan)[row])
        said, planned = (_status(plan, int(r[0])) for r in (rows[row], wanted["names"][row]))
        return f"{asked}: the text gives {said}, the plan {planned}"
    return (
        library_facts.difference(recording.rows["library"], Catalogue.of(plan))
        if len(rows)
        else None
    )


def _status(plan: Plan, status: int) -> str:
    place = status - 1000
    return "_".join(entries(plan)[place]) if 0 <= place < len(entries(plan)) else f"{status}"


def _cells(name: str, what: str, planned: I4, said: I4) -> str:
    """Describes two rows that differ, column by column."""
    rows = (
        ", ".join(f"{c} {v}" for c, v in zip(COLUMNS[name], row.tolist(), strict=True))
        for row in (said, planned)
    )
    return "{}: the text says {}; the plan {}".format(what, *rows)


def _mismatch(where: str, what: str, said: object, planned: object) -> str:
    return f"{where}: {what}: the text says {said}, the plan {planned}"


def _first(mine: I4, theirs: I4) -> int | None:
    """Returns the first row in which the tables differ, or that one of them lacks; None if none."""
    shared = min(len(mine), len(theirs))
    rows = np.flatnonzero((mine[:shared] != theirs[:shared]).any(axis=1))
    if len(rows):
        return int(rows[0])
    return None if len(mine) == len(theirs) else max(shared - 1, 0)


def _primitive(head: I4) -> str:
    return f"rank {head[0]}, thread block {head[1]}, primitive {head[2]}"


def _mode(mode: int) -> str:
    """Writes a primitive's mode as `reduce, final`."""
    return ", ".join(name for name, bit in MODES.items() if mode & bit) or "copy"


def _item(name: str, row: I4) -> str:
    """Writes a wait, an operand or a post for a reader."""
    if name == "waits":
        return f"flag {row[0]}"
    if name == "posts":
        return f"flag {row[1]} of rank {row[0]}"
    kind = int(row[0])
    if kind in (RECV, SEND, SEND_FAR):
        cells = ("queue", "peer", *OPERAND[3:])
        return ", ".join(f"{c} {v}" for c, v in zip(cells, row[1:].tolist(), strict=True))
    function = KINDS[kind] if 0 <= kind < len(KINDS) else f"kind {kind}"
    return f"{function} of rank {row[1]}, slot {row[2]}"
