"""Fuzzes both parsers, `.rccl` and MSCCL XML: `python -m tests.fuzz.parsers --seconds 600`.

Inputs come from `grammar`; input i of a seed is always the same. A worker with little memory
reads one after the other and says which it has begun; whatever is not an answer within five
seconds of processor time, or is any exception but UserError, or ends the worker, is a crasher,
and is saved. Run from the repository's root; needs hccc importable (`PYTHONPATH=src`).
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from hccc.base.diagnostics import Source, UserError
from hccc.interop.import_msccl import import_parsed
from hccc.ir import plan_check
from hccc.lang.msccl import load as msccl_xml
from hccc.lang.transfer import load as transfer

from . import grammar

ROOT = Path(__file__).resolve().parents[2]
CRASHERS = Path(__file__).parent / "crashers"
SECONDS = 5.0  # of processor time for one input
PATIENCE = 60.0  # seconds of silence before a worker is killed
MEMORY = 2 << 30  # bytes of address space: the largest program allowed needs half of it
SMALL = 20_000  # bytes of a seed
# What an imported Plan may still be refused for: it leaves slots unwritten, reduces where nothing
# is reduced, or holds other chunks in place than out of place. Anything else would let proofs
# index outside their arrays.
UNPROVED = ("E315", "several sources where nothing is reduced", "may be longer than slot")
SEEDS = {
    "rccl": ("examples/*.rccl", "tests/errors/*.rccl"),
    "xml": ("tests/interop/data/*.xml", "../shared/corpus/*/*.xml"),
}


class Slow(BaseException):
    """Raised where an input takes too long."""


@dataclass(frozen=True, slots=True)
class Crash:
    """An input that a parser did not answer."""

    kind: str
    number: int
    what: str


def seeds(kind: str) -> list[bytes]:
    """Returns small files of a kind, to damage."""
    paths = [p for pattern in SEEDS[kind] for p in sorted(ROOT.glob(pattern))]
    return [p.read_bytes() for p in paths if p.stat().st_size < SMALL]


class Inputs:
    """Input number i of a seed."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._seeds = seeds(kind)

    def __getitem__(self, number: int) -> bytes:
        rng = Random(f"{self._kind} {self._seed} {number}")
        made = grammar.program(rng) if self._kind == "rccl" else grammar.schedule(rng)
        words = grammar.RCCL_WORDS if self._kind == "rccl" else grammar.XML_WORDS
        if rng.random() < 0.3:
            return made
        return grammar.damaged(rng, [made, *self._seeds], words)


def read(kind: str, data: bytes) -> str:
    """Reads one input: returns "accepted" or the code of its error. Raises whatever is a crash."""
    try:
        source = Source("fuzz", data.decode("utf-8", "replace"))
        if kind == "rccl":
            transfer.parse(source)
            return "accepted"
        plan, _ = import_parsed(msccl_xml.parse(source))
    except UserError as error:
        return error.problem.code
    try:
        plan_check.check(plan)
    except UserError as error:
        if not any(words in str(error) for words in UNPROVED):
            raise AssertionError(f"the import made a plan that is not sound: {error}") from error
    return "accepted"


def _too_slow(signum: int, frame: FrameType | None) -> None:
    raise Slow(f"more than {SECONDS} seconds")


def timed(kind: str, data: bytes) -> str:
    """Reads the data as `read` does. Raises Slow after SECONDS of CPU time."""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return read(kind, data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _work(kind: str, inputs: Inputs, numbers: range, out: int) -> None:
    """Reads inputs in the worker; prints a line before and after each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in numbers:
        os.write(out, f"begin {number}\n".encode())
        try:
            said = timed(kind, inputs[number])
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                return
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"crash {type(error).__name__} in {Path(where.filename).name}:{where.lineno}"
        os.write(out, f"end {number} {said}\n".encode())


def fuzz(kind: str, seed: int, seconds: float, most: int) -> tuple[int, Counter[str], list[Crash]]:
    """Reads at most `most` inputs: (their number, the count of each outcome, the crashes)."""
    inputs, said, crashes = Inputs(kind, seed), Counter[str](), list[Crash]()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end and number < most:
        back, out = os.pipe()
        child = os.fork()
        if not child:
            os.close(back)
            _work(kind, inputs, range(number, most), out)
            os._exit(0)
        os.close(out)
        number, crash = _watch(kind, back, end, range(number, most), said)
        os.close(back)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        crashes += crash
    return number, said, crashes


def _watch(
    kind: str, back: int, end: float, numbers: range, said: Counter[str]
) -> tuple[int, list[Crash]]:
    """Follows one worker until it crashes, falls silent or time is up: (next input, crashes)."""
    rest, crashes, number = b"", list[Crash](), numbers.start
    while time.monotonic() < end and number < numbers.stop:
        ready, _, _ = select.select([back], [], [], PATIENCE)
        data = os.read(back, 1 << 16) if ready else b""
        if not data:
            what = "ended the worker" if ready else "never answered"
            return number + 1, [*crashes, Crash(kind, number, what)]
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            words = line.decode().split(" ", 2)
            number = int(words[1]) + (words[0] == "end")
            if words[0] == "end":
                said[words[2].split(" ")[0]] += 1
                if words[2].startswith("crash"):
                    crashes.append(Crash(kind, number - 1, words[2]))
    return number, crashes


def save(crash: Crash, seed: int, folder: Path) -> Path:
    """Writes the input of a crash."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{seed}_{crash.number}.{crash.kind}"
    path.write_bytes(Inputs(crash.kind, seed)[crash.number])
    return path


def replay(paths: list[Path]) -> int:
    """Reads saved inputs again; how many still crash."""
    bad = 0
    for path in paths:
        try:
            print(f"{path.name}: {timed(path.suffix[1:], path.read_bytes())}")
        except BaseException:
            bad += 1
            print(f"{path.name}: {traceback.format_exc()}")
    return bad


def main() -> int:
    """Runs the command line; returns 1 when anything crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each of the parsers")
    parser.add_argument("--inputs", type=int, default=1 << 40, help="at most, for each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(SEEDS), action="append")
    parser.add_argument("--save", type=Path, default=CRASHERS)
    parser.add_argument("--replay", type=Path, nargs="+", help="saved inputs, instead")
    chosen = parser.parse_args()
    if chosen.replay:
        return int(replay(chosen.replay) > 0)
    found = 0
    for kind in chosen.kind or SEEDS:
        number, said, crashes = fuzz(kind, chosen.seed, chosen.seconds, chosen.inputs)
        common = ", ".join(f"{code} {times}" for code, times in said.most_common())
        print(f"{kind}: {number} inputs, {len(crashes)} crashes; {common}", flush=True)
        for crash in crashes:
            print(f"  {crash.what}: {save(crash, chosen.seed, chosen.save)}", flush=True)
        found += len(crashes)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
