"""fuzz_jobs: the laws of jobs, on random ones or on changes of one (`hccc fuzz JOB`).

- *job*: `verify_job` accepts a changed job only if what its steps do to elements, one after
  another, is its collective, for any number of elements; and it refuses no other job, but for
  copies of what is there already;
- *saved*: its text, its JSON and its table give the same job back;
- *simulated*: on any cluster a call ends, all its steps are made in its time, and micro-batches
  make it no slower;
- *lanes*: the tasks that the runtime makes of a right job give its collective, for any count and
  number of micro-batches, in place or not, with lanes or as an ordered list, and whatever order
  lanes come in.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from random import Random
from typing import Any

from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir import job_json, job_table
from hccc.ir.collective import ROOTED, Collective, OpType
from hccc.ir.job import Job, check, lines, same
from hccc.lang.cluster.load import parse as parse_cluster
from hccc.lang.transfer.jobs import parse_job
from hccc.passes.verify_job import verify_job
from hccc.predict.jobs import simulate_job
from hccc.synth.builtin.hetccl import OPS, hetccl
from hccc.testing.job_lanes import World
from hccc.testing.job_reference import clusters, is_right
from hccc.testing.mutate_job import mutate_job
from hccc.testing.mutate_plan import Choose

JOB_ROUND = {"job": 60, "saved": 20, "simulated": 10, "lanes": 20}
BUILT = "lanes"  # the law that needs the runtime, and so a compiler
THERE_ALREADY = "E207"
NUMBERS = (0, 1, 2, 5, 7)  # of elements, besides one that every border cuts evenly
MUTANTS = 4  # of one job
MOST_EVEN = 240
MOST_SIMULATED = 48  # steps

Term = tuple[tuple[int, int], ...]  # inputs that are in a value: (rank, element), each once


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Draws HetCCL's job of a collective over vendor clusters."""
    v, op = draw(clusters()), draw(st.sampled_from(OPS))
    return hetccl(v, op, draw(st.integers(0, v.n_ranks - 1)) if op in ROOTED else 0)


def _choices() -> st.SearchStrategy[int]:
    return st.integers(0, 2**32)


def _from(rng: Random) -> Choose:
    return lambda n: rng.randrange(n + 1) if n > 0 else 0


def _accepted(job: Job) -> str:
    """Returns the code of the error that refuses a job, or ``."""
    try:
        verify_job(job)
    except UserError as error:
        return error.problem.code
    return ""


def _verdict(job: Job, seed: int) -> None:
    choose = _from(Random(seed))
    even = min(MOST_EVEN, lcm(*(cut.denominator for cut in job.clusters.cuts())))
    for _ in range(MUTANTS):
        mutant, what = mutate_job(job, choose)
        if check(mutant):
            continue
        code, wrong = _accepted(mutant), [n for n in (even, *NUMBERS) if not is_right(mutant, n)]
        assert code or not wrong, f"{what}: it is accepted, and wrong for {wrong[0]} elements"
        refused = code not in ("", THERE_ALREADY) and not wrong
        assert not refused or even == MOST_EVEN, f"{what}: it is right, and {code} refuses it"


def _saved(job: Job, seed: int) -> None:
    mutant, what = mutate_job(job, _from(Random(seed)))
    job = job if check(mutant) else mutant
    text = "\n".join(lines(job)) + "\n"
    assert same(parse_job(Source("job.rccl", text), job.clusters), job), f"{what}: its text differs"
    assert same(job_json.loads(job_json.dumps(job)), job), f"{what}: its JSON differs"
    batches = [(0, 1), (1 << 20, 4)]
    found, its = job_table.loads(job_table.dumps(job, batches))
    assert its == batches and len(found) == len(job), f"{what}: its table differs"


def _simulated(job: Job, seed: int) -> None:
    rng, n = Random(seed), job.collective.n_ranks
    if len(job) > MOST_SIMULATED:
        return
    each = rng.choice([k for k in range(1, n + 1) if n % k == 0])
    device, network = rng.choice(["A100", "MI300X"]), rng.choice(["RoCE", "InfiniBand"])
    text = f"define network = {network}\ndefine node1 = {n // each} * {each}\n"
    t = parse_cluster(Source("site.cluster", f"{text}define device = {device}\n"))
    for run in simulate_job(job, t, [1 << rng.randrange(3, 28)]).runs:
        assert 0 < run.time < float("inf"), "a call has no time"
        assert run.time <= run.one, "micro-batches make a call slower"
        made = {(task.step, task.batch) for task in run.tasks}
        assert len(made) == len(job) * run.batches, "not all steps were made"
        assert all(0 <= x.begin <= x.end <= run.time for x in run.tasks), "a step is out of time"


def _lanes(job: Job, seed: int) -> None:
    rng = Random(seed)
    mutant, _ = mutate_job(job, _from(rng))
    if not check(mutant) and not _accepted(mutant):
        job = mutant
    count, batches = rng.choice([0, 1, 3, 7, 12, 61]), rng.choice([1, 1, 2, 5])
    in_place, lanes = rng.random() < 0.5, rng.random() < 0.7
    several = [len(job.clusters.members(k)) > 1 for k in range(len(job.clusters))]
    by_library = [of and rng.random() < 0.3 for of in several]
    c = job.collective
    x: list[list[Term]] = [
        [((r, i),) for i in range(c.input_blocks(r) * count)] for r in range(c.n_ranks)
    ]
    world = World(job, count, batches, in_place, x, lanes, by_library)
    world.run(rng, add)
    for r, its in enumerate(world.ranks):
        got: list[Any] = its.buffers[1][:]
        how = f"{count} elements, {batches} micro-batches, in place {in_place}, lanes {lanes}"
        assert got == wanted(c, x, r, count), f"rank {r} has another result: {how}"


def wanted(c: Collective, inputs: list[list[Term]], rank: int, count: int) -> list[Term]:
    """Returns what a rank's receive buffer must have of the inputs of all ranks."""

    def block(source: int, k: int) -> list[Term]:
        return inputs[source][k * count : (k + 1) * count]

    def total(k: int) -> list[Term]:
        each = [block(source, k) for source in range(c.n_ranks)]
        return [tuple(sorted(sum(terms, ()))) for terms in zip(*each, strict=True)]

    if not c.output_blocks(rank):
        return []
    everyone = range(c.n_ranks)
    match c.op:
        case OpType.ALLREDUCE | OpType.REDUCE:
            return total(0)
        case OpType.REDUCESCATTER:
            return total(rank)
        case OpType.BROADCAST:
            return block(c.root, 0)
        case OpType.SCATTER:
            return block(c.root, rank)
        case OpType.SENDRECV:
            return block((rank - 1) % c.n_ranks, 0)
        case OpType.ALLTOALL:
            return [x for source in everyone for x in block(source, rank)]
        case _:
            return [x for source in everyone for x in block(source, 0)]


def add(a: Term, b: Term) -> Term:
    """Adds two values, which have no input in common."""
    assert not set(a) & set(b), "a contribution is added twice"
    return tuple(sorted(a + b))


_BODIES: dict[str, Callable[[Job, int], None]] = {
    "job": _verdict,
    "saved": _saved,
    "simulated": _simulated,
    "lanes": _lanes,
}


def law(name: str, subject: Job | None) -> tuple[Any, Callable[..., None]]:
    """Returns the examples of a law, of one job or of random ones, and its body."""
    return st.tuples(jobs() if subject is None else st.just(subject), _choices()), _BODIES[name]
