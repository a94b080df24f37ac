"""fuzz: the laws of hccc on random programs, for as long as one likes (`hccc fuzz`).

- *result*: a correct program, compiled in a random way, proved, and executed step by step in a
  random interleaving, gives the reference executor's result, for calls of any count too;
- *verdict*: `verify` accepts a mutated program exactly if the reference executor does;
- *plan*: a plan file with a change in any field is refused, or every call of it, of any
  count, gives the collective's result all the same;
- *xml*: MSCCL XML with a change is refused, or gives the result of MSCCL's runtimes;
- *kernel*: the compiled CPU kernel gives the collective's result for a random type, operation,
  count, micro-batch and window, in and out of place.

Calls of uneven collectives, which *xml* does not know, draw a length for each block. Jobs have laws
of their own (`fuzz_jobs`), which are tried where nothing is given, or a job.

A round has a fixed number of examples and a seed of its own: round k of seed s is round 0 of seed s
+ k, which is how a finding is replayed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import OPS, reduces
from hccc.driver.compilation import compile_program
from hccc.driver.options import Options
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir import job_json, plan_check, plan_json
from hccc.ir.collective import OpType
from hccc.ir.job import Job
from hccc.ir.primitives import Transport
from hccc.ir.program import Program
from hccc.ir.uneven import SKEWS
from hccc.passes.verify import verify
from hccc.runtime.layout import DTYPES
from hccc.runtime.request import LaunchRequest
from hccc.testing.assertions import text
from hccc.testing.fuzz_jobs import BUILT, JOB_ROUND
from hccc.testing.fuzz_jobs import law as job_law
from hccc.testing.judge import REFUSED, first_fault, plan_verdict, xml_verdict
from hccc.testing.kernels import wrong_elements
from hccc.testing.mutate import Mutant
from hccc.testing.mutate_plan import Choose, mutate_plan
from hccc.testing.mutate_xml import mutate_xml
from hccc.testing.reference import REDUCE_OPS, exact_inputs, is_correct, run
from hccc.testing.stepwise import execute
from hccc.testing.strategies import correct_programs, mutants, options

ROUND = {"result": 40, "verdict": 60, "plan": 25, "xml": 25, "kernel": 2}
MUTANTS = 8  # of one plan or XML file
CALLS = 2  # of one mutant that is accepted
LARGEST = 5000  # transfers of a program given: beyond, the step-wise executor takes minutes


@dataclass(frozen=True, slots=True)
class Finding:
    """A law that does not hold: the smallest program or job found, and how it was compiled."""

    law: str
    program: Program | Job
    options: str
    reason: str
    seed: int

    def lines(self) -> str:
        """Returns the program in the transfer language, or the job as JSON, for a file of its
        own."""
        program = self.program
        return job_json.dumps(program) if isinstance(program, Job) else text(program)


@dataclass(slots=True)
class Tally:
    """The examples tried so far, by law, and the finding, if any."""

    examples: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    finding: Finding | None = None


OnRound = Callable[[Tally], None]


Subject = Program | Job | OpType | None


def round_of(subject: Subject) -> dict[str, int]:
    """Returns the laws of a round, and how many examples of each."""
    own = {} if isinstance(subject, Job) else ROUND
    return own | (JOB_ROUND if subject is None or isinstance(subject, Job) else {})


def fuzz(
    subject: Subject,
    *,
    examples: int | None,
    seconds: float | None,
    seed: int,
    on_round: OnRound,
    kernels: bool = True,
    uneven: bool | None = None,
) -> Tally:
    """Tries random programs and jobs, programs of one collective, or changes of one program or job.

    uneven: whether blocks of random programs have lengths of their own; None: of some.

    Ends after `examples` examples or `seconds`, whichever comes first, or at the first finding.
    """
    tally, end = Tally(), time.monotonic() + (seconds or float("inf"))
    without = {*([] if kernels else ["kernel", BUILT]), *(["xml"] if uneven else [])}
    laws = {law: n for law, n in round_of(subject).items() if law not in without}
    while tally.finding is None and time.monotonic() < end:
        for law, count in laws.items():
            left = (examples or 1 << 60) - sum(tally.examples.values())
            if left > 0 and tally.finding is None and time.monotonic() < end:
                tried = _tried(law, subject, uneven)
                _round(tally, law, *tried, min(count, left), seed + tally.rounds)
        tally.rounds += 1
        on_round(tally)
        if examples is not None and sum(tally.examples.values()) >= examples:
            break
    return tally


def _tried(law: str, subject: Subject, uneven: bool | None) -> tuple[Any, Callable[..., None]]:
    """Returns the examples of a law, and its body."""
    if law in JOB_ROUND:
        return job_law(law, subject if isinstance(subject, Job) else None)
    assert not isinstance(subject, Job)
    return _LAWS[law](_programs(subject, False if law == "xml" else uneven))


def _programs(subject: Program | OpType | None, uneven: bool | None) -> st.SearchStrategy[Program]:
    """Draws the programs of a law."""
    if isinstance(subject, Program):
        return st.just(subject)
    return correct_programs(subject, uneven=uneven)


def _round(
    tally: Tally,
    law: str,
    strategy: st.SearchStrategy[Any],
    body: Callable[..., None],
    count: int,
    seed: int,
) -> None:
    """Runs one law on `count` examples; hypothesis shrinks an example that breaks it."""
    last: dict[str, Any] = {}

    @with_seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(strategy)
    def attempt(example: tuple[Any, ...]) -> None:
        last["example"] = example
        tally.examples[law] += 1
        body(*example)

    try:
        attempt()
    except Exception as error:  # anything at all breaks a law, so it is reported, not raised
        subject, *rest = last["example"]
        program = subject.program if isinstance(subject, Mutant) else subject
        tried = ", ".join(map(str, rest))
        tally.finding = Finding(law, program, tried, f"{type(error).__name__}: {error}", seed)


def _result(programs: st.SearchStrategy[Program]) -> tuple[Any, Callable[..., None]]:
    how = st.tuples(
        st.integers(1, 7),
        st.sampled_from([1, 2, None]),
        st.sampled_from(REDUCE_OPS),
        st.booleans(),
        st.integers(0, 2**16),
    )
    return st.tuples(programs, options(), how), _same_result


def _same_result(program: Program, chosen: Options, how: tuple[Any, ...]) -> None:
    micro_batches, window, op, in_place, seed = how
    plan = compile_program(program, chosen).plan
    plan_check.check(plan)
    op, in_place = op if plan.averages or op != "avg" else "sum", in_place and plan.in_place
    x = exact_inputs(program.collective, np.int64, (micro_batches,), seed=seed)
    want = run(program, x, op, np.int64)
    got = execute(plan, x, op, in_place=in_place, window=window, seed=seed)
    for rank, (a, b) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(a, b), f"rank {rank} ends with other data than the reference"
    found = first_fault(plan, _from(Random(seed)), CALLS)
    assert found is None, found


def _verdict(programs: st.SearchStrategy[Program]) -> tuple[Any, Callable[..., None]]:
    return st.tuples(mutants(programs)), _same_verdict


def _same_verdict(mutant: Mutant) -> None:
    try:
        verify(mutant.program)
        accepted, reason = True, ""
    except UserError as error:
        accepted, reason = False, str(error)
    right = is_correct(mutant.program)
    assert accepted == right, (
        f"verify {'accepts' if accepted else 'refuses'} a program that is "
        f"{'right' if right else 'wrong'} {reason}"
    )


def _plan(programs: st.SearchStrategy[Program]) -> tuple[Any, Callable[..., None]]:
    return st.tuples(programs, options(), st.integers(0, 2**32)), _sound_plans


def _sound_plans(program: Program, chosen: Options, seed: int) -> None:
    rng = Random(seed)
    data = json.loads(plan_json.dumps(compile_program(program, chosen).plan))
    for _ in range(MUTANTS):
        mutant, what = mutate_plan(data, _from(rng))
        found = plan_verdict(mutant, _from(rng), CALLS)
        assert found in (REFUSED, None), f"a plan with another {what} is accepted: {found}"


def _xml(programs: st.SearchStrategy[Program]) -> tuple[Any, Callable[..., None]]:
    return st.tuples(programs, st.integers(0, 2**32)), _sound_xml


def _sound_xml(program: Program, seed: int) -> None:
    rng = Random(seed)
    staged = Options(transport=Transport.STAGED, allocator="connection", prove=False)
    form = XmlOptions(rng.choice(["executor", "msccl"]), in_place=rng.choice([True, False]))
    try:
        xml = export_msccl(compile_program(program, staged).plan, form)
    except UserError:
        return  # not every plan has a form there
    for _ in range(MUTANTS):
        mutant, what = mutate_xml(xml, _from(rng))
        found = xml_verdict(mutant, _from(rng), CALLS)
        assert found in (REFUSED, None), f"XML with another {what} is accepted: {found}"


def _from(rng: Random) -> Choose:
    return lambda n: rng.randrange(n + 1) if n > 0 else 0


def _kernel(programs: st.SearchStrategy[Program]) -> tuple[Any, Callable[..., None]]:
    pairs = [(dtype, op) for dtype in sorted(DTYPES) for op in OPS if reduces(dtype, op)]
    reduction = st.shared(st.sampled_from(pairs), key="dtype and op")
    requests = st.builds(
        LaunchRequest,
        count=st.one_of(st.integers(0, 40), st.integers(0, 20_000)),
        dtype=reduction.map(lambda pair: pair[0]),
        op=reduction.map(lambda pair: pair[1]),
        in_place=st.just(False),
        micro_batch=st.sampled_from([64, 1024, 1 << 18]),
        window=st.sampled_from([0, 1, 2]),
        timeout=st.just(20.0),
        workers=st.integers(0, 2),
    )
    return st.tuples(
        programs, options(prove=False), requests, st.sampled_from(SKEWS)
    ), _right_kernel


def _right_kernel(program: Program, chosen: Options, request: LaunchRequest, skew: str) -> None:
    wrong = wrong_elements(compile_program(program, chosen).plan, request, skew)
    assert wrong == 0, f"the compiled kernel gives {wrong} wrong elements"


_LAWS = {"result": _result, "verdict": _verdict, "plan": _plan, "xml": _xml, "kernel": _kernel}
