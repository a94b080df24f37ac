"""execute: compiles a text for the host and runs it, in a process that can do nothing else.

The text has no words but hccc's (`vocabulary`). The compiler gets its arguments as a list, a folder
of its own, no environment but PATH, and limits of time and memory (`base/limits`). The compiled
program gives up all rights before it runs any of the text (`include/hccc/recorder.h`), which bounds
a mistake; it does not hold a text that may define functions of the C library. Undefined behaviour
of C traps: an integer that overflows, an index outside its table.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import as_file
from importlib.resources import files as resources
from pathlib import Path

from hccc.base.building.compiler import ERROR_LINES, find_compiler
from hccc.base.diagnostics import Note, UserError, fail
from hccc.base.limits import COMPILE_BYTES, COMPILE_S, RUN_BYTES, RUN_S
from hccc.emit.targets import Target
from hccc.ir.plan import Plan
from hccc.validate import recording, unit
from hccc.validate.processes import LimitedProcesses
from hccc.validate.recording import TextRecording
from hccc.validate.tables import ENTRY, Rows

FLAGS = (
    "-std=c++17",
    "-O0",
    "-w",
    "-pipe",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift,bounds,return",
    "-fsanitize-undefined-trap-on-error",
    f"-DHCCC_DTYPE={ENTRY[0]}",
    f"-DHCCC_OP={ENTRY[1]}",
    f"-DHCCC_RUN_BYTES={RUN_BYTES}",
)
# The C library and nothing of C++'s, whose initialisation asks the system for more than is allowed.
LIBRARIES = ("-nodefaultlibs", "-lc", "-lgcc")
PER_SECOND = 500_000  # primitives recorded, far fewer than it does
Run = Callable[[Sequence[str], Path, float, int], tuple[int, str]]
DEATHS = {
    signal.SIGILL: "an integer overflows, or an index is outside its table",
    signal.SIGSEGV: "it addresses memory that it does not have",
    signal.SIGFPE: "it divides by zero",
    signal.SIGXCPU: "it does not end",
    signal.SIGKILL: "it does not end, or asks the system for something",
}


def execute(
    files: Mapping[str, bytes],
    plan: Plan,
    target: Target,
    wanted: Rows,
    processes: LimitedProcesses | None = None,
) -> TextRecording:
    """Runs the text of `target` among `files` and returns its recording.

    wanted: see `tables.expected`. processes: runs the compiler and the text, so that a caller can
    end them.

    Raises:
        UserError: E412 there is no compiler; E439 the text has other words, does not compile, or
        does not end.
    """
    compiler, run = find_compiler(), (processes or LimitedProcesses()).run
    with tempfile.TemporaryDirectory(prefix="hccc-") as folder:
        place = Path(folder)
        unit.lay_out(place, files, plan, target)
        compile_unit(run, compiler, place, unit.text_name(plan, target))
        seconds = RUN_S + 2 * plan.channels * len(plan) // PER_SECOND
        recording.prepare(place / "record", plan, wanted, seconds)
        command = [str(place / "run"), str(place / "record")]
        code, errors = run(command, place, seconds + 10, 0)
        result = recording.read(place / "record", wanted)
        if result.outcome <= recording.RecordingOutcome.STARTED:
            raise _died(unit.text_name(plan, target), code, errors, result)
        return result


def compile_unit(run: Run, compiler: str, place: Path, name: str) -> None:
    """Compiles the unit in `place` to the program `run`. Raises UserError E439."""
    with (
        as_file(resources("hccc.validate") / "include") as recording_headers,
        as_file(resources("hccc.runtime") / "include") as headers,
    ):
        search = [f"-I{recording_headers}", f"-I{headers}"]
        command = [compiler, *FLAGS, *search, unit.UNIT, *LIBRARIES, "-o", "run"]
        code, errors = run(command, place, COMPILE_S, COMPILE_BYTES)
    if code:
        lines = [line for line in errors.splitlines() if line.strip()][:ERROR_LINES]
        notes = [Note("\n".join(lines) or "the compiler did not end, or printed nothing")]
        message = f"{name}: does not compile against what records its calls"
        raise fail("E439", message, notes=notes)


def _died(name: str, code: int, errors: str, result: TextRecording) -> UserError:
    """Builds the error for a text that did not finish."""
    with suppress(ValueError):
        why = DEATHS.get(signal.Signals(-code), f"{signal.Signals(-code).name}")
        rank, tb, _ = result.at
        after = f"after {len(result.rows['primitives']):,} primitives"
        message = f"{name}: stops at rank {rank}, thread block {tb}, {after}: {why}"
        return fail("E439", message)
    why = errors.strip() or f"exit code {code}"
    return fail("E439", f"{name}: does not run on this machine ({why})")
