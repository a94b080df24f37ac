"""recording: the file in which a text's process records: laid out before the run, read after it.

`include/hccc/recorder.h` describes it: the words of `hccc_shared`, then the rows of every table, as
many as the Plan has. The process maps it and can write nothing else, so the result is bounded,
whatever the text does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan
from hccc.validate.tables import COLUMNS, CONSTANTS, Rows

WORDS = (
    "outcome",
    "rank",
    "tb",
    "channel",
    "full",
    "ranks",
    "blocks",
    "channels",
    "channel_step",
    "calls",
    "seconds",
    "sandboxed",
)
ALL_CHANNELS = 1 << 20  # primitives of all channels together up to which every channel is run
SPARE = 1  # rows of a table besides those it should have: a longer table shows by one more


class RecordingOutcome(IntEnum):
    """How a run ended; NOTHING: before it began."""

    NOTHING = 0
    STARTED = 1  # and never ended
    DONE = 2
    MORE = 3
    VARIES = 4
    OUTSIDE = 5
    LOOPS = 6
    LEFT = 7


@dataclass(frozen=True, slots=True)
class TextRecording:
    """The recording of one run.

    at: the last (rank, thread block, channel) it reached; full: the table that had no room for
    another row; sandboxed: whether the system refused all system calls.
    """

    outcome: RecordingOutcome
    at: tuple[int, int, int]
    full: str
    sandboxed: bool
    rows: Rows


def prepare(path: Path, plan: Plan, wanted: Rows, seconds: int) -> None:
    """Writes the empty file for a run of at most `seconds`."""
    channels = plan.channels
    every = len(plan) * channels <= ALL_CHANNELS
    words = {
        "ranks": plan.n_ranks,
        "blocks": int(plan.n_tb.max(initial=1)),
        "channels": channels,
        "channel_step": 1 if every else channels,
        "calls": len(wanted["calls"]),
        "seconds": seconds,
    }
    layout, size = _layout(wanted)
    head = np.array([words.get(name, 0) for name in WORDS], np.int64)
    with path.open("wb") as file:
        file.write(np.concatenate([head, layout.reshape(-1)]).tobytes())
        file.truncate(size)
    calls = wanted["calls"]
    cells = np.memmap(path, np.int32, "r+")
    at = int(layout[list(COLUMNS).index("calls"), 0])
    rows = cells[at : at + calls.size].reshape(calls.shape)
    rows[:, :2] = calls[:, :2]
    cells.flush()


def _layout(wanted: Rows) -> tuple[I8, int]:
    """Returns (first cell, columns, most rows, rows) of every table: i8[tables, 4], and the bytes
    of the file."""
    at = 2 * (len(WORDS) + 4 * len(COLUMNS))
    table = np.zeros((len(COLUMNS), 4), np.int64)
    for k, (name, columns) in enumerate(COLUMNS.items()):
        rows = len(CONSTANTS) if name == "constants" else len(wanted[name]) + SPARE
        table[k] = at, len(columns), rows, 0
        at += len(columns) * rows
    return table, 4 * at


def read(path: Path, wanted: Rows) -> TextRecording:
    """Reads the recording. Anything that the process left there is taken for mere numbers."""
    head = np.fromfile(path, np.int64, len(WORDS) + 4 * len(COLUMNS))
    words = dict(zip(WORDS, head[: len(WORDS)].tolist(), strict=True))
    counts = head[len(WORDS) :].reshape(-1, 4)[:, 3]
    layout, _ = _layout(wanted)
    rows = {name: table(path, layout[k], int(counts[k])) for k, name in enumerate(COLUMNS)}
    known = words["outcome"] in iter(RecordingOutcome)
    names = list(COLUMNS)
    return TextRecording(
        RecordingOutcome(words["outcome"]) if known else RecordingOutcome.STARTED,
        (words["rank"], words["tb"], words["channel"]),
        names[words["full"] % len(names)],
        bool(words["sandboxed"]),
        rows,
    )


def table(path: Path, layout: I8, count: int) -> I4:
    """Reads the rows of one table at `layout`, at most as many as it has room for."""
    at, width, most, _ = layout.tolist()
    rows = min(max(count, 0), most)
    return np.fromfile(path, np.int32, rows * width, offset=4 * at).reshape(rows, width)
