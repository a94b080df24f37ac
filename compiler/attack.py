"""attack: `hccc fuzz`: runs the laws of `hccc.testing.fuzz` and tells what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hccc import report
from hccc.diagnostics import fail
from hccc.ir.collective import OpType
from hccc.ir.program import Program
from hccc.lang import transfer

try:
    from hccc.testing import fuzz
except ModuleNotFoundError as error:
    raise fail("E451", f"fuzzing needs {error.name}", help="pip install 'hccc[test]'") from None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `hccc fuzz`."""

    algorithm: Path | None
    collectives: tuple[str, ...] | None
    examples: int | None
    seed: int
    seconds: float | None
    kernels: bool


def run(wanted: Wanted, as_json: bool) -> bool:
    """Fuzzes what is `wanted`; returns whether a law was broken."""
    subject = _subject(wanted)
    with _progress(wanted) as on_round:
        tally = fuzz.fuzz(
            subject,
            examples=wanted.examples,
            seconds=wanted.seconds,
            seed=wanted.seed,
            on_round=on_round,
            kernels=wanted.kernels,
        )
    if as_json:
        report.as_json(_facts(tally, wanted))
    else:
        _tell(tally, wanted)
    return tally.finding is not None


def _subject(wanted: Wanted) -> Program | OpType | None:
    if wanted.algorithm and wanted.collectives:
        raise fail("E415", "either ALGO or --collective, not both")
    if wanted.collectives:
        if len(wanted.collectives) > 1:
            raise fail("E415", "--collective takes one; without it all are tried")
        return next(op for op in OpType if op.value.lower() == wanted.collectives[0])
    if wanted.algorithm is None:
        return None
    program = transfer.load(wanted.algorithm)
    if len(program) > fuzz.LARGEST:
        message = f"{wanted.algorithm} has {len(program):,} transfers, more than {fuzz.LARGEST:,}"
        help = "make nRanks smaller: most mistakes show with a few ranks"
        raise fail("E415", message, help=help)
    return program


@contextmanager
def _progress(wanted: Wanted) -> Iterator[fuzz.OnRound]:
    """A status line on stderr while it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("fuzzing") as status:
        yield lambda tally: status.update(f"fuzzing: {_counts(tally)}, round {tally.rounds}")


def _counts(tally: fuzz.Tally) -> str:
    total = sum(tally.examples.values())
    each = ", ".join(f"{n:,} {law}" for law, n in tally.examples.items())
    return f"{total:,} examples ({each})"


def replay(finding: fuzz.Finding, wanted: Wanted) -> str:
    """The command that finds it again, in its first round."""
    subject = f" {wanted.algorithm}" if wanted.algorithm else ""
    if wanted.collectives:
        subject = f" --collective {wanted.collectives[0]}"
    flag = "" if wanted.kernels else " --no-kernels"
    return f"hccc fuzz{subject} --seed {finding.seed} --examples {sum(fuzz.ROUND.values())}{flag}"


def _tell(tally: fuzz.Tally, wanted: Wanted) -> None:
    if tally.finding is None:
        print(f"nothing found: {_counts(tally)}, seed {wanted.seed}")
        return
    finding = tally.finding
    print(f"# after {_counts(tally)}: the law of the {finding.law} is broken")
    for line in (*finding.reason.splitlines(), *([finding.way] if finding.way else [])):
        print(f"# {line}")
    print(f"# replay: {replay(finding, wanted)}")
    print(finding.lines(), end="")


def _facts(tally: fuzz.Tally, wanted: Wanted) -> report.Facts:
    found: report.Facts = {"examples": dict(tally.examples), "rounds": tally.rounds}
    found |= {"seed": wanted.seed, "finding": None}
    if f := tally.finding:
        found["finding"] = {
            "law": f.law, "reason": f.reason, "way": f.way, "program": f.lines(),
            "replay": replay(f, wanted),
        }  # fmt: skip
    return found
