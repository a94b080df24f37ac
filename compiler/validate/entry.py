"""entry: checks that a catalogue's C header and dispatcher choose the catalogue's plans.

They are compiled for the host with stubs in the place of the plans' entries, and called on both
sides of every border, in and out of place, for elements of every width. The arguments that each
stub received, and the header's answers on the call, are compared with `runtime/picks`. The kernels
of the plans themselves are validated one by one (`validate`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import fail
from hccc.base.limits import RUN_S
from hccc.emit.targets import Target
from hccc.ir.arrays import I4, I8
from hccc.ir.catalogue import Catalogue
from hccc.runtime.layout import DTYPES
from hccc.runtime.picks import Picks, picks_of
from hccc.runtime.request import LaunchRequest
from hccc.validate import execute, library_facts, recording, unit, vocabulary
from hccc.validate.processes import LimitedProcesses
from hccc.validate.tables import (
    BAD_ARGUMENT,
    COLUMNS,
    LAUNCHED,
    Rows,
    entries,
    names,
    queries,
    shapes,
    user_blocks,
)

CALL = ("entry", "in place", "window", "count", "micro-batch", "flags at")  # what is called with
FOUND = (
    "status",
    "launches",
    "plan",
    "window",
    "micro-batch",
    "flags at",
    "passed on",
    "plan_of",
    "scratch bytes",
    "flag bytes",
)
_GIVEN, _WIDTH = 9, 23  # cells of a row; counts and bytes take two
_LONG = frozenset({"count", "micro-batch", "flags at", "scratch bytes", "flag bytes"})
_WINDOWS, _MICRO_BATCHES, _FLAGS_AT = (0, 5), (0, 0, 4096), (0, 896)
_HUGE = 1 << 34  # elements
_HELP = "the catalogue is what was proved; this is a bug in hccc unless somebody edited the text"


def files_of(name: str, target: Target) -> tuple[str, str]:
    """Returns the names of a catalogue's C header and dispatcher."""
    return f"{name}.h", f"{name}_{target.name}_dispatch.cpp"


def validate_entry(files: Mapping[str, bytes], catalogue: Catalogue, target: Target) -> None:
    """Compares the header and the dispatcher of `target` among `files` with the catalogue.

    Does nothing if one of the two is not among the files. O(ranges).

    Raises:
        UserError: E412 there is no compiler; E438 a choice or an answer is wrong; E439 the text
        does not compile or does not end.
    """
    header, dispatch = files_of(catalogue.name, target)
    if not {header, dispatch} <= files.keys():
        return
    wanted, processes = _expected(catalogue), LimitedProcesses()
    try:
        recorded = _recorded(files, catalogue, target, wanted, processes)
    finally:
        processes.end()  # where somebody presses Ctrl-C
    if (difference := _difference(recorded, wanted, catalogue)) is not None:
        raise fail("E438", f"{dispatch}: {difference}", help=_HELP)


def _recorded(
    files: Mapping[str, bytes],
    catalogue: Catalogue,
    target: Target,
    wanted: Rows,
    processes: LimitedProcesses,
) -> Rows:
    """Runs the header and the dispatcher and returns the rows they record. Raises UserError E412,
    E439."""
    header, dispatch = files_of(catalogue.name, target)
    with tempfile.TemporaryDirectory(prefix="hccc-") as folder:
        place = Path(folder)
        for name in (header, dispatch):
            own = catalogue.plans[0].reductions
            vocabulary.check(name, files[name], catalogue.name, target, own)
            (place / name).write_bytes(files[name])
        built = " ".join(f"ENTRY({d}, {o})" for d, o in entries(catalogue.narrowest)[:-1])
        (place / f"{catalogue.name}_built.h").write_text(f"#define HCCC_BUILT(ENTRY) {built}\n")
        (place / unit.UNIT).write_text("\n".join(_lines(catalogue, target)) + "\n")
        execute.compile_unit(processes.run, find_compiler(), place, dispatch)
        _prepare(place / "record", catalogue, wanted)
        command = [str(place / "run"), str(place / "record")]
        code, errors = processes.run(command, place, RUN_S + 10, 0)
        recorded = _read(place / "record", wanted)
    if recorded is None:
        why = errors.strip() or f"exit code {code}"
        raise fail("E439", f"{dispatch}: does not come to its end ({why})")
    return recorded


def _lines(catalogue: Catalogue, target: Target) -> Iterator[str]:
    """Yields the lines of the translation unit."""
    name, built = catalogue.name, entries(catalogue.narrowest)[:-1]
    header, dispatch = files_of(name, target)
    yield '#include "hccc/recorder.h"'  # before anything of the text
    yield f"#define HCCC_IS_GPU {int(bool(target.stream))}"
    if target.stream:
        yield f"{target.stream.rstrip('*')};"
        yield f"#define HCCC_STREAM {target.stream}"
    yield '#include "hccc/entry_stubs.h"'
    for k, plan in enumerate(catalogue.plans):
        for number, (dtype, op) in enumerate(built):
            yield f"HCCC_STUB({plan.name}_{target.name}_{dtype}_{op}, {k}, {number})"
    yield f'#include "{header}"'
    yield f'#include "{dispatch}"'
    yield f"#define HCCC_CATALOGUE(rest) {name}##rest"
    yield f"#define HCCC_BY_NAME {name}_{target.name}"
    yield f"#define HCCC_DESCRIBE {name}_{target.name}_library"
    yield f"#define HCCC_SAYS {library_facts.strings(catalogue, target)}"
    called = (f"{{{name}_{target.name}_{d}_{o}, {DTYPES[d].itemsize}}}" for d, o in built)
    yield f"#define HCCC_CALLED {', '.join(called)}"
    asked = (f"{{{unit.string(d)}, {unit.string(o)}}}" for d, o in queries(catalogue.narrowest))
    yield f"#define HCCC_QUERIES {', '.join(asked)}"
    yield '#include "hccc/record_entry.h"'


def _expected(catalogue: Catalogue) -> dict[str, I4]:
    """Returns the expected rows of every recorded table."""
    first = catalogue.plans[0]
    return {
        "shape": shapes(catalogue.plans),
        "user_blocks": user_blocks(first),
        "calls": _calls(catalogue),
        "names": names(catalogue.narrowest, serves=False in catalogue.modes, alone=False),
        "library": library_facts.rows(catalogue),
    }


def _calls(catalogue: Catalogue) -> I4:
    """Lists calls around every border with their expected outcome: i4[calls, _WIDTH]."""
    picks, built = picks_of(catalogue), entries(catalogue.narrowest)[:-1]
    widths = {DTYPES[dtype].itemsize: k for k, (dtype, _) in reversed(list(enumerate(built)))}
    blocks = catalogue.collective.most_blocks()
    rows: list[list[int]] = []
    for in_place in (0, 1, 3):
        for size, entry in widths.items():
            middle = {r.begin // (size * blocks) for r in catalogue.ranges}
            counts = {0, 3, _HUGE, *(m + off for m in middle for off in (-1, 0, 1))}
            for count in sorted({-1, *(c for c in counts if 0 <= c <= _HUGE)}):
                n = len(rows)
                how = _WINDOWS[n % 2], _MICRO_BATCHES[n % 3], _FLAGS_AT[n // 2 % 2]
                rows.append(_call(picks, (entry, in_place, how[0], count, *how[1:]), size))
    return np.array(rows, np.int64).astype(np.int32)


def _call(picks: Picks, given: tuple[int, ...], size: int) -> list[int]:
    """Returns a row: a call and its expected outcome."""
    entry, in_place, window, count, micro_batch, flags_at = given
    cells = [entry, in_place, window, *_halves(count), *_halves(micro_batch), *_halves(flags_at)]
    flag_bytes = _halves(picks.flag_bytes)
    if count < 0 or bool(in_place) not in picks.catalogue.modes:
        refused = [BAD_ARGUMENT, 0, 0, 0, *_halves(0), *_halves(0), 0, 0]
        return [*cells, *refused, *_halves(-1), *flag_bytes]
    dtype = next(name for name, kind in DTYPES.items() if kind.itemsize == size)
    request = LaunchRequest(count, dtype, "sum", bool(in_place), micro_batch, window)
    chosen, shape = picks.range_of(request), picks.shape_of(request)
    micro = micro_batch or shape.sizes(count, size).micro * size
    at, scratch = (
        flags_at + picks.flags_at(chosen.plan),
        shape.scratch_bytes(count, size, micro_batch),
    )
    return [
        *cells,
        LAUNCHED + entry,
        1,
        chosen.plan,
        window or chosen.window,
        *_halves(micro),
        *_halves(at),
        1,
        chosen.plan + 1,
        *_halves(scratch),
        *flag_bytes,
    ]


def _halves(value: int) -> tuple[int, int]:
    """Splits a number of 64 bits into two of 32, the lower one by its bits."""
    low = value & 0xFFFFFFFF
    return low - (1 << 32) * (low >> 31), value >> 32


def _layout(wanted: Rows) -> I8:
    """Returns (first cell, columns, most rows, rows) of every table of `recorder.h`: i8[tables,
    4]."""
    at = 2 * (len(recording.WORDS) + 4 * len(COLUMNS))
    table = np.zeros((len(COLUMNS), 4), np.int64)
    for k, name in enumerate(COLUMNS):
        if name in wanted:
            rows, width = wanted[name].shape
            table[k] = at, width, rows + recording.SPARE, 0
            at += width * (rows + recording.SPARE)
    return table


def _prepare(path: Path, catalogue: Catalogue, wanted: Rows) -> None:
    """Writes the recording file, with the calls to make."""
    calls = wanted["calls"]
    words = {
        "ranks": catalogue.n_ranks,
        "blocks": len(catalogue.plans),
        "calls": len(calls),
        "seconds": RUN_S,
    }
    layout = _layout(wanted)
    head = np.array([words.get(name, 0) for name in recording.WORDS], np.int64)
    cells = np.zeros(int((layout[:, 0] + layout[:, 1] * layout[:, 2]).max()), np.int32)
    cells[: 2 * (head.size + layout.size)] = np.concatenate([head, layout.ravel()]).view(np.int32)
    at = int(layout[list(COLUMNS).index("calls"), 0])
    given = np.zeros_like(calls)
    given[:, :_GIVEN] = calls[:, :_GIVEN]
    cells[at : at + calls.size] = given.ravel()
    path.write_bytes(cells.tobytes())


def _read(path: Path, wanted: Rows) -> dict[str, I4] | None:
    """Reads the recorded rows; None if the run did not finish."""
    head = np.fromfile(path, np.int64, len(recording.WORDS) + 4 * len(COLUMNS))
    if head[0] not in (recording.RecordingOutcome.DONE, recording.RecordingOutcome.MORE):
        return None
    counts, layout = head[len(recording.WORDS) :].reshape(-1, 4)[:, 3], _layout(wanted)
    return {
        name: recording.table(path, layout[k], int(counts[k]))
        for k, name in enumerate(COLUMNS)
        if name in wanted
    }


def _difference(recorded: Rows, wanted: Rows, catalogue: Catalogue) -> str | None:
    """Describes the first difference from the catalogue; None if there is none."""
    for name, what in (
        ("shape", "the shapes of plans"),
        ("user_blocks", "blocks of buffers"),
        ("calls", ""),
        ("names", "entries by name"),
    ):
        mine, theirs = wanted[name], recorded[name]
        if mine.shape != theirs.shape:
            return f"{what or 'calls'}: {len(theirs)} of them, the catalogue has {len(mine)}"
        different = np.flatnonzero((mine != theirs).any(axis=1))
        if different.size:
            row = int(different[0])
            if name == "calls":
                return _wrong_call(theirs[row].tolist(), mine[row].tolist(), catalogue)
            return f"{what}, row {row}: {theirs[row].tolist()}, not {mine[row].tolist()}"
    return library_facts.difference(recorded["library"], catalogue)


def _wrong_call(said: list[int], planned: list[int], catalogue: Catalogue) -> str:
    """Describes a call with its recorded and its expected outcome."""
    given, says, wants = (
        _fields(CALL, planned),
        *(_fields(FOUND, r[_GIVEN:]) for r in (said, planned)),
    )
    dtype, op = entries(catalogue.narrowest)[given.pop("entry")]
    call = ", ".join(f"{name} {value}" for name, value in given.items())
    name = next((name for name in FOUND if says[name] != wants[name]), FOUND[0])
    difference = f"{name}: the text says {says[name]}, the catalogue {wants[name]}"
    return f"called for {dtype} and {op} with {call}: {difference}"


def _fields(names: tuple[str, ...], cells: list[int]) -> dict[str, int]:
    """Returns the cells by name, with halves joined."""
    fields, at = {}, 0
    for name in names:
        long = name in _LONG
        fields[name] = (cells[at] & 0xFFFFFFFF) + (cells[at + 1] << 32) if long else cells[at]
        at += 1 + long
    return fields
