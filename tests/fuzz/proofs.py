"""Attacks the proofs: `python -m tests.fuzz.proofs --plans 100000 --xml 50000 --jobs 2`.

Plan files with something changed in any field, and MSCCL XML with something changed, go through
all checks; what is accepted is run on odd counts (`hccc.testing.judge`). Bases are plans of random
programs, compiled in random ways, this repository's XML, and small files of a corpus beside it.
Mutant i of a seed is always the same. Prints a table, and each mutant that is accepted and wrong,
which it keeps in a file; the exit status says whether there was one. Run from the repository's
root; needs hccc importable (`PYTHONPATH=src`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import Phase, given, seed, settings

from hccc.base.diagnostics import UserError
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir import plan_json
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.testing import correct_programs, options
from hccc.testing.judge import REFUSED, plan_verdict, xml_verdict
from hccc.testing.mutate_plan import Choose, PlanData, mutate_plan, text
from hccc.testing.mutate_xml import mutate_xml
from tests.health_checks import EVERY_CHECK

ROOT = Path(__file__).resolve().parents[2]
XML = ("tests/interop/data/*.xml", "../shared/corpus/*/*.xml")
SMALL = 12_000  # bytes of a file to change
BATCH = 250  # mutants between two looks at the clock, all of a few dozen bases
BASES = 24
CALLS = 3  # of every mutant that is accepted


@dataclass(slots=True)
class Count:
    """Outcomes of mutants. wrong: the change and the fault, by the mutant's file."""

    tried: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, str] = field(default_factory=dict)


def grown(number: int) -> Iterator[tuple[Program, Options]]:
    """Yields random programs, and options to compile them."""
    made: list[tuple[Program, Options]] = []

    @seed(number)
    @settings(
        max_examples=BASES,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=EVERY_CHECK,
    )
    @given(correct_programs(max_ranks=5, max_transfers=24), options())
    def collect(program: Program, way: Options) -> None:
        made.append((program, way))

    collect()
    yield from made


def plan_bases(number: int) -> list[PlanData]:
    """Returns plan files of random programs."""
    plans: list[Plan] = [compile_program(p, way).plan for p, way in grown(number)]
    return [json.loads(plan_json.dumps(plan)) for plan in plans]


def xml_bases(number: int) -> list[str]:
    """Exports of random programs, and files that others wrote."""
    made, rng = [], Random(number)
    for program, _ in grown(number):
        way = Options(transport=Transport.STAGED, allocator="connection", prove=False)
        form = XmlOptions(rng.choice(["executor", "msccl"]), in_place=rng.choice([True, False]))
        try:
            made.append(export_msccl(compile_program(program, way).plan, form))
        except UserError:
            continue  # not every plan has a form there
    paths = [path for pattern in XML for path in sorted(ROOT.glob(pattern))]
    texts = [p.read_text(encoding="utf-8") for p in paths if p.stat().st_size < SMALL]
    return made + [one for one in texts if one.count("\n") > 4]


def plan_mutants(number: int) -> Count:
    """Tries BATCH mutants of plans."""
    return _batch(number, plan_bases, mutate_plan, plan_verdict, text)


def xml_mutants(number: int) -> Count:
    """Tries BATCH mutants of XML files."""
    return _batch(number, xml_bases, mutate_xml, xml_verdict, str)


def _batch(
    number: int,
    bases: Callable[[int], list[Any]],
    mutate: Callable[[Any, Choose], tuple[Any, str]],
    verdict: Callable[[Any, Choose, int], str | None],
    written: Callable[[Any], str],
) -> Count:
    rng, some, count = Random(number), bases(number), Count()

    def choose(n: int) -> int:
        return rng.randrange(n + 1) if n > 0 else 0

    while count.tried < BATCH:
        base = rng.choice(some)
        mutant, what = mutate(base, choose)
        if mutant == base:
            continue
        count.tried += 1
        found = verdict(mutant, choose, CALLS)
        if found != REFUSED:
            count.accepted[what if len(what) < 30 else what[:27] + "..."] += 1
            if found is not None:
                kept = Path(tempfile.gettempdir()) / f"hccc-mutant-{number}-{count.tried}"
                kept.write_text(written(mutant), encoding="utf-8")
                count.wrong[str(kept)] = f"{what}: {found}"
    return count


def campaign(name: str, work: Callable[[int], Count], total: int, first: int, jobs: int) -> Count:
    """Tries `total` mutants in batches of their own seeds; prints as it goes."""
    numbers = range(first, first + -(-total // BATCH))
    every, begin = Count(), time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        for done, count in enumerate(pool.map(work, numbers), start=1):
            every.tried += count.tried
            every.accepted += count.accepted
            every.wrong |= count.wrong
            for path, reason in count.wrong.items():
                print(f"WRONG {path}: {reason}", flush=True)
            if done % 20 == 0 or done == len(numbers):
                accepted, spent = every.accepted.total(), time.monotonic() - begin
                line = f"{name}: {every.tried:,} tried, {accepted:,} accepted"
                print(f"{line}, {len(every.wrong)} wrong, {spent:.0f} s", flush=True)
    return every


def main() -> int:
    """Runs both campaigns; 1 when a mutant was accepted and wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--xml", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    plans = campaign("plans", plan_mutants, given.plans, given.seed, given.jobs)
    xml = campaign("xml", xml_mutants, given.xml, given.seed, given.jobs)
    for what, times in plans.accepted.most_common(30):
        print(f"{times:7,}  {what}")
    return bool(plans.wrong or xml.wrong)


if __name__ == "__main__":
    sys.exit(main())
