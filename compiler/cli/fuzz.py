"""`hccc fuzz`: runs the laws of `hccc.testing.fuzz` and `directories`, and tells what came of
it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hccc.base.diagnostics import UserError, fail
from hccc.base.progress import tell
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import json_option
from hccc.cli.progress import progress
from hccc.cli.types import AlgorithmFile, ClusterFile, Duration, Words
from hccc.driver.facts import Facts
from hccc.ir.op_type import NAMES as COLLECTIVES
from hccc.ir.op_type import UNEVEN_NAMES

if TYPE_CHECKING:
    from hccc.ir.job import Job
    from hccc.ir.program import Program
    from hccc.testing.fuzz import Finding, OnRound, Subject, Tally


@click.command(
    short_help="Attack hccc, or one ALGO, with random programs and runs.",
    cls=HelpfulCommand,
    examples=[
        "hccc fuzz --time 10m",
        "hccc fuzz ring.rccl --examples 10000",
        "hccc fuzz job.rccl --cluster site.cluster",
    ],
)
@click.argument("algorithm", type=AlgorithmFile(), metavar="[ALGO]", required=False)
@click.option(
    "--collective",
    type=Words((*COLLECTIVES, *UNEVEN_NAMES)),
    help="Random programs of this one only.",
)
@click.option("--examples", type=click.IntRange(1), help="How many; 1,000 without --time.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Same seed, same examples.")
@click.option("--time", "seconds", type=Duration(), help="How long: 30s, 10m, 1h.")
@click.option("--kernels/--no-kernels", default=True, help="Also build and run CPU kernels.")
@click.option("--directories", is_flag=True, help="Change directories of kernels instead.")
@click.option(
    "--cluster",
    type=ClusterFile(),
    metavar="FILE",
    help="Whose vendor clusters a job's text is over.",
)
@json_option
def fuzz(
    algorithm: Path | None,
    collective: tuple[str, ...] | None,
    examples: int | None,
    seed: int,
    seconds: float | None,
    kernels: bool,
    directories: bool,
    cluster: Path | None,
    as_json: bool,
) -> None:
    """Attack hccc with random programs and jobs, or ALGO with random changes, options and runs.

    What it finds is shrunk and printed as a program, with the command that replays it; the exit
    code is then 1. Of a job changed ones go through its proof, what reads and writes it, the
    simulator and what executes it. With --directories it changes the directory of kernels of ALGO,
    or of a small program, as somebody would who wants `check` or `run` to execute code of theirs.
    """

    budget = examples if examples or seconds else 1000
    wanted = FuzzOptions(algorithm, collective, budget, seed, seconds, kernels, cluster)
    found = (run_directories if directories else run)(wanted, as_json)
    click.get_current_context().exit(1 if found else 0)


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """The options of `hccc fuzz`."""

    algorithm: Path | None
    collectives: tuple[str, ...] | None
    examples: int | None
    seed: int
    seconds: float | None
    kernels: bool
    cluster: Path | None = None


def run(wanted: FuzzOptions, as_json: bool) -> bool:
    """Fuzzes what is `wanted`; returns whether a law was broken."""
    try:
        from hccc.testing import fuzz as laws
    except ModuleNotFoundError as error:
        raise fail("E456", f"fuzzing needs {error.name}", help="pip install 'hccc[test]'") from None

    subject = _subject(wanted)
    with _progress() as on_round:
        tally = laws.fuzz(
            subject,
            examples=wanted.examples,
            seconds=wanted.seconds,
            seed=wanted.seed,
            on_round=on_round,
            kernels=wanted.kernels,
            uneven=_uneven(wanted),
        )
    if as_json:
        report.as_json(_facts(tally, wanted))
    else:
        _tell(tally, wanted)
    return tally.finding is not None


def run_directories(wanted: FuzzOptions, as_json: bool) -> bool:
    """Attacks directories of kernels; returns whether a law was broken."""
    from hccc.testing.directories import attack_directories

    if wanted.collectives or wanted.cluster:
        raise fail("E415", "--directories: give ALGO, and no --collective or --cluster")
    with progress("Fuzzing"):
        tally = attack_directories(
            _program(wanted.algorithm) if wanted.algorithm else None,
            examples=wanted.examples,
            seconds=wanted.seconds,
            seed=wanted.seed,
            on_example=lambda tally: tell(f"Fuzzing: {tally.examples:,} directories"),
        )
    subject = f" {wanted.algorithm}" if wanted.algorithm else ""
    command = f"hccc fuzz{subject} --directories --seed {tally.seed} --examples 1"
    if as_json:
        outcomes = [
            {"change": one.change, "check": one.check, "run": one.run, "directories": n}
            for one, n in sorted(tally.outcomes.items(), key=str)
        ]
        finding = {"reason": tally.finding, "replay": command} if tally.finding else None
        found = {"directories": tally.examples, "outcomes": outcomes, "finding": finding}
        report.as_json(found | {"seed": wanted.seed})
    elif tally.finding:
        print(f"# after {tally.examples:,} directories: {tally.finding}")
        print(f"# replay: {command}")
    else:
        print(f"nothing found: {tally.examples:,} directories, seed {wanted.seed}")
        print(f"  {'change':<12} {'directories':>12} {'check accepts':>14} {'run accepts':>12}")
        for change, (n, checked, run) in tally.by_change().items():
            print(f"  {change:<12} {n:12,} {checked:14,} {run:12,}")
    return bool(tally.finding)


def _subject(wanted: FuzzOptions) -> Subject:
    if wanted.algorithm and wanted.collectives:
        raise fail("E415", "either ALGO or --collective, not both")
    from hccc.ir.collective import OpType

    if job := _job(wanted):
        return job
    if wanted.cluster:
        raise fail("E415", "--cluster is for jobs", help="leave it out")

    if wanted.collectives:
        if len(wanted.collectives) > 1:
            raise fail("E415", "--collective takes one; without it all are tried")
        (name,) = wanted.collectives
        return next(op for op in OpType if op.value.lower() == name.removesuffix("v"))
    if wanted.algorithm is None:
        return None
    return _program(wanted.algorithm)


def _job(wanted: FuzzOptions) -> Job | None:
    """Returns the job that is given, checked; None of anything else."""
    from hccc.driver.inputs import JobInput, job_of, load_cluster, opened
    from hccc.testing.fuzz import LARGEST

    if wanted.algorithm is None or not wanted.algorithm.is_file():
        return None
    if not isinstance(what := opened(wanted.algorithm), JobInput):
        return None
    job = job_of(what, load_cluster(wanted.cluster) if wanted.cluster else None)
    if len(job) > LARGEST:
        raise _too_large(wanted.algorithm, f"{len(job):,} steps")
    return job


def _uneven(wanted: FuzzOptions) -> bool | None:
    """Tells whether the named collective is uneven; None if none is named."""
    return wanted.collectives[0] in UNEVEN_NAMES if wanted.collectives else None


def _program(path: Path) -> Program:
    from hccc.driver.inputs import JobInput, opened
    from hccc.lang.transfer import load as transfer
    from hccc.testing.fuzz import LARGEST

    if path.is_file() and isinstance(opened(path), JobInput):
        message = f"{path} is a job, and directories are of programs"
        raise fail("E481", message, help=f"`hccc check {path}` proves it")
    program = transfer.load(path)
    if len(program) > LARGEST:
        raise _too_large(path, f"{len(program):,} transfers")
    return program


def _too_large(path: Path, what: str) -> UserError:
    from hccc.testing.fuzz import LARGEST

    help = "make it of fewer ranks: most mistakes show with a few"
    return fail("E415", f"{path} has {what}, more than {LARGEST:,}", help=help)


@contextmanager
def _progress() -> Iterator[OnRound]:
    """Yields the function that shows a round."""
    with progress("Fuzzing"):
        yield lambda tally: tell(f"Fuzzing: {_counts(tally)}, round {tally.rounds}")


def _counts(tally: Tally) -> str:
    total = sum(tally.examples.values())
    each = ", ".join(f"{n:,} {law}" for law, n in tally.examples.items())
    return f"{total:,} examples ({each})"


def replay(finding: Finding, wanted: FuzzOptions) -> str:
    """Returns the command that finds the same again, in its first round."""
    subject = f" {wanted.algorithm}" if wanted.algorithm else ""
    if wanted.collectives:
        subject = f" --collective {wanted.collectives[0]}"
    from hccc.testing.fuzz import round_of

    flag = "" if wanted.kernels else " --no-kernels"
    flag += f" --cluster {wanted.cluster}" if wanted.cluster else ""
    examples = sum(round_of(_subject(wanted)).values())
    return f"hccc fuzz{subject} --seed {finding.seed} --examples {examples}{flag}"


def _tell(tally: Tally, wanted: FuzzOptions) -> None:
    if tally.finding is None:
        print(f"nothing found: {_counts(tally)}, seed {wanted.seed}")
        return
    finding = tally.finding
    print(f"# after {_counts(tally)}: the law of the {finding.law} is broken")
    for line in (*finding.reason.splitlines(), *([finding.options] if finding.options else [])):
        print(f"# {line}")
    print(f"# replay: {replay(finding, wanted)}")
    print(finding.lines(), end="")


def _facts(tally: Tally, wanted: FuzzOptions) -> Facts:
    found: Facts = {"examples": dict(tally.examples), "rounds": tally.rounds}
    found |= {"seed": wanted.seed, "finding": None}
    if f := tally.finding:
        found["finding"] = {
            "law": f.law,
            "reason": f.reason,
            "options": f.options,
            "program": f.lines(),
            "replay": replay(f, wanted),
        }
    return found
