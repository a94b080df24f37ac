"""api: what `import hccc` offers: the functions behind the commands of the same names.

    import hccc

    site = hccc.load_cluster("site.cluster")
    compiled = hccc.compile("ring.rccl", cluster=site)
    print(hccc.simulate(compiled, [1 << 20, 1 << 26]).text())
    hccc.write(compiled, "kernels")

Everything wrong with what is given is one exception, `UserError`; its `problem` is the diagnostic:
a code, a message, the place in the text with its line and columns, notes and help, and
`str(error)` is what the command line prints, with Python's names for options. Sizes are in bytes,
or text such as "64M", times in µs, bandwidths in GB/s (10⁹ bytes/s). Values are frozen, and arrays
in them read-only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from hccc.api.arguments import (
    Algorithm,
    Cluster,
    ClusterMaker,
    Given,
    collective_of,
    compiled_of,
    drawn,
    job_and_cluster,
    job_on,
    paths_of,
    simulated,
    topology_of,
    where,
)
from hccc.api.arguments import load_cluster as load_cluster
from hccc.api.wording import python_words
from hccc.base.diagnostics import Source, fail
from hccc.base.progress import OnPhase, reporting, tell
from hccc.driver import assumed, inputs
from hccc.driver.compiled import Compiled, LoadedDirectory
from hccc.driver.facts import title
from hccc.driver.inputs import JobInput, opened
from hccc.driver.load import assembled, check_name, load, load_library, renamed
from hccc.driver.options import Options, check_integer, check_size
from hccc.driver.pass_manager import OnPass, watching
from hccc.ir.collective import collective_named
from hccc.ir.demand import Demand
from hccc.ir.job import Job
from hccc.ir.limits import MAX_RANKS
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.sketch import Allotment
from hccc.ir.topology import Topology
from hccc.proofs.prove import check_plan

# Simulating, drawing and writing import SciPy, Matplotlib, Jinja: twice the time to start.
if TYPE_CHECKING:
    from hccc.driver.outputs import Written
    from hccc.launch.measure import Measurement, RunOptions
    from hccc.pictures.canvas import Picture
    from hccc.predict.balance import Speed
    from hccc.predict.bounds import Bounds
    from hccc.predict.difference import Difference
    from hccc.predict.explanation import Explanation
    from hccc.predict.job_explanation import JobExplanation
    from hccc.predict.jobs import JobSimulation
    from hccc.predict.simulation import Call, Simulation, Sizes
    from hccc.synth.synthesis import SizesSynthesis, Synthesis

DEFAULT_SIZE = 64 << 20


@python_words
@reporting
def compile(
    algorithm: Algorithm | Sequence[Algorithm],
    options: Options | None = None,
    *,
    cluster: Cluster | ClusterMaker | None = None,
    name: str = "",
    reschedule: bool = False,
    on_phase: OnPhase | None = None,
    on_pass: OnPass | None = None,
) -> Compiled:
    """Compiles an algorithm into a proved Plan; several into a library of the best for each size.

    Args:
        algorithm: a path (a program, a plan's JSON, MSCCL XML, or a directory of kernels; what it
            holds tells), the text of one (a `str` of more than one line, or a `Source`), or a
            Program. Several: programs of one collective.
        options: how; those of the command line.
        cluster: what to schedule for, its file, or what makes it of the program (`common_cluster`,
            `host_cluster`). None for common nodes of as many GPUs as the header has, which is for
            every function here, but for `run`; with `Options(tune="off")` for what the header
            describes, and nothing is chosen by time. Of MSCCL XML it says what the memory domains
            are.
        name: of the library, instead of the algorithm's, or, of several, the collective's.
        reschedule: raise MSCCL XML to a program, and schedule that.
        on_phase: is told the name of each phase as it begins.
        on_pass: is given the name of each pass and the IR that it returned.

    Raises:
        UserError: anything wrong with the algorithm, the options or the cluster.
    """
    check_name(name)
    topology = where(cluster, options)
    with watching(on_pass):
        if isinstance(algorithm, Sequence) and not isinstance(algorithm, str):
            if reschedule or not algorithm:
                what = "reschedule: Programs always are" if reschedule else "no algorithm is given"
                raise fail("E416", what, help="one program or more, of one collective")
            given = [inputs.opened(one) for one in algorithm]
            return load_library(given, options, topology, name=name)
        if reschedule and isinstance(algorithm, Program):
            raise fail("E416", "reschedule: a Program always is", help="it is for MSCCL XML")
        one = inputs.opened(algorithm)
        return renamed(load(one, options, topology, reschedule=reschedule), name)


@overload
def check(
    algorithm: Job, *, cluster: Cluster | None = None, on_phase: OnPhase | None = None
) -> Job: ...


@overload
def check(
    algorithm: Given,
    options: Options | None = None,
    *,
    cluster: Cluster | ClusterMaker | None = None,
    reschedule: bool = False,
    on_phase: OnPhase | None = None,
    on_pass: OnPass | None = None,
) -> Compiled: ...


@python_words
@reporting
def check(
    algorithm: Given | Job,
    options: Options | None = None,
    *,
    cluster: Any = None,
    reschedule: bool = False,
    on_phase: OnPhase | None = None,
    on_pass: OnPass | None = None,
) -> Compiled | Job:
    """Proves an algorithm right, and returns the proofs with its plans; of a job, the job.

    Of a directory of kernels the files are compared with what its plan emits, too (`sources`).
    What the plan emits is run on the host and compared with what the plan says (`validated`);
    nothing of the directory is compiled.
    Takes what `compile` takes, a Plan, and what was compiled, whose plan is proved again. Without
    a cluster the plan is as the program's header says: nothing is chosen.

    Raises:
        UserError: the first proof that fails, or anything wrong with what is given.
    """
    if isinstance(algorithm, Job):
        _check_of_job(options=options, reschedule=reschedule, on_pass=on_pass)
        return job_and_cluster(algorithm, cluster)[0]
    if isinstance(algorithm, Plan | Compiled):
        if cluster is not None or reschedule:
            raise fail("E416", "cluster and reschedule have no effect: this is compiled already")
        compiled = _proved(compiled_of(algorithm, None, None))
    else:
        compiled = compile(
            algorithm,
            replace(options or Options(), prove=True),
            cluster=cluster or assumed.as_written,
            reschedule=reschedule,
            on_pass=on_pass,
        )
    if not isinstance(compiled, LoadedDirectory):
        return compiled
    from hccc.driver import outputs

    return outputs.compared(compiled)


def _proved(compiled: Compiled) -> Compiled:
    """Proves again what was compiled."""
    tell("Proof")
    proofs = check_plan(compiled.plan)
    several = () if compiled.catalogue.alone else compiled.catalogue.plans
    each = tuple(map(check_plan, several)) or (proofs,)
    return replace(compiled, proofs=proofs, catalogue_proofs=each)


def _unless_skew(call: Call | None) -> Call | None:
    """Returns None of a call that says nothing but how blocks are skewed, which jobs take too."""
    return None if call is not None and call == type(call)(skew=call.skew) else call


def _check_of_job(**given: object) -> None:
    """Raises UserError E416 for arguments that have no effect on a job."""
    if unused := [name for name, value in given.items() if value]:
        raise fail("E416", f"{unused[0]} has no effect: this is a job", help="leave it out")


@python_words
def load_job(job: str | Path | Source, *, cluster: Cluster | None = None) -> Job:
    """Reads a job from a file, or a text, and proves it.

    cluster: whose vendor clusters it is over; a job's JSON has its own.

    Raises:
        UserError: E407 it is no job; E482 nothing says its vendor clusters; anything wrong with it.
    """
    return job_and_cluster(job, cluster)[0]


@overload
def simulate(
    algorithm: Job,
    sizes: Sequence[int | str] | Sizes | int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster,
    on_phase: OnPhase | None = None,
) -> JobSimulation: ...


@overload
def simulate(
    algorithm: Given,
    sizes: Sequence[int | str] | Sizes | int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster | None = None,
    vs: bool | str = False,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Simulation: ...


@python_words
@reporting
def simulate(
    algorithm: Given | Job,
    sizes: Sequence[int | str] | Sizes | int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster | None = None,
    vs: bool | str = False,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Simulation | JobSimulation:
    """Predicts what calls take on a cluster.

    Args:
        algorithm: what `compile` takes, a Plan, what was compiled, or a job, which has no
            `vs` or `options`, and of `call` the skew.
        sizes: bytes of each call, as nccl-tests counts them; one, several, or a range of them.
        call: window, micro-batch, protocol and what else a call may choose.
        cluster: None for the one that it was compiled for, or for common nodes (`compile`).
        vs: also what the library of the cluster's devices would take (True; or "nccl", "rccl"), as
            it is by default and with registered buffers, NCCL's rings and trees, and the algorithm
            as MSCCL would run it.
        options: how to compile what is not compiled yet, and the baselines.
        on_phase: is told the name of each phase as it begins.

    Raises:
        UserError: E424 nothing says on what cluster; whatever cannot be simulated.
    """
    from hccc.predict.nccl.rows import VendorLibrary
    from hccc.predict.simulation import Call, simulate_sizes

    each = _sizes(sizes)
    if isinstance(algorithm, Job):
        from hccc.predict.jobs import simulate_job

        _check_of_job(call=_unless_skew(call), vs=vs, options=options)
        return simulate_job(*job_on(algorithm, cluster), each, (call and call.skew) or "")
    compiled, where = simulated(algorithm, cluster, options)
    baselines = options or Options() if vs else None
    library = VendorLibrary(vs) if isinstance(vs, str) and vs != "auto" else None
    return simulate_sizes(compiled, where, each, call or Call(), baselines, library)


@overload
def explain(
    algorithm: Job,
    size: int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster,
    on_phase: OnPhase | None = None,
) -> JobExplanation: ...


@overload
def explain(
    algorithm: Given,
    size: int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster | None = None,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Explanation: ...


@python_words
@reporting
def explain(
    algorithm: Given | Job,
    size: int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster | None = None,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Explanation | JobExplanation:
    """Says why a call of `size` bytes takes its time on a cluster, and what would help.

    Takes and raises what `simulate` does.
    """
    from hccc.predict import explanation
    from hccc.predict.simulation import Call

    size = check_size("size", size)
    if isinstance(algorithm, Job):
        from hccc.predict.job_explanation import explain_job

        _check_of_job(call=_unless_skew(call), options=options)
        return explain_job(*job_on(algorithm, cluster), size, (call and call.skew) or "")
    compiled, where = simulated(algorithm, cluster, options)
    call = call or Call()
    compiled = compiled.at(size, call.in_place)
    request = call.settled(compiled.plan, where, size)
    return explanation.explain(compiled, where, request, options)


@python_words
@reporting
def diff(
    one: Given,
    other: Given,
    sizes: Sequence[int | str] | Sizes | int | str = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Cluster | None = None,
    names: tuple[str, str] = ("", ""),
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Difference:
    """Says where and why one algorithm is faster than another on a cluster.

    Args:
        one, other: what `simulate` takes, of one collective.
        sizes, call, options, on_phase: as of `simulate`.
        cluster: None for the one that the first was compiled for, or for common nodes (`compile`).
        names: what to call them, instead of the names of their programs.

    Raises:
        UserError: E479 they are of two collectives; what `simulate` raises.
    """
    from hccc.predict.difference import compare
    from hccc.predict.simulation import Call

    each = _sizes(sizes)
    first, where = simulated(one, cluster, options)
    second, _ = simulated(other, where, options)
    called = names[0] or first.catalogue.name, names[1] or second.catalogue.name
    return compare(called, (first, second), where, each, call or Call())


def _sizes(sizes: Sequence[int | str] | Sizes | int | str) -> Sizes | list[int]:
    """Returns sizes in bytes."""
    from hccc.predict.simulation import Sizes

    if isinstance(sizes, Sizes):
        return sizes
    several = [sizes] if isinstance(sizes, str | int) else sizes
    return [check_size("size", one) for one in several]


@python_words
def bound(
    cluster: Cluster,
    collectives: str | Demand | Sequence[str] | None = None,
    size: int | str = DEFAULT_SIZE,
    *,
    root: int = 0,
    max_sms: int | None = None,
) -> Bounds:
    """Says what no schedule of a collective can beat on a cluster, for a call of `size` bytes.

    Args:
        cluster: a Topology, or its file.
        collectives: `"allgather"`, or several; None for all but SendRecv; or a demand.
        root: of rooted collectives.
        max_sms: thread blocks of a rank; None for as many as `synthesize` takes at most.

    Raises:
        UserError: E465 there is no such collective; E410 no such root; what `load_cluster` raises.
    """
    from hccc.predict import bounds

    size = check_size("size", size)
    root = check_integer("root", root, 0, None)
    where = topology_of(cluster)
    assert where is not None  # a cluster was given
    if max_sms is not None:
        max_sms = check_integer("max_sms", max_sms, 1, None)
    if isinstance(collectives, Demand):
        return bounds.bounds_of(where, where.name or "the cluster", size, collectives, max_sms)
    named = [collectives] if isinstance(collectives, str) else collectives
    ops = bounds.ALL if named is None else tuple(map(collective_named, named))
    return bounds.bounds(where, where.name or "the cluster", size, ops, root, max_sms)


@python_words
def load_demand(demand: str | Path | Source, n_ranks: int) -> Demand:
    """Reads a demand, for `synthesize`: which ranks have each block of a call, and which want it.

    Args:
        demand: its file, or its text, a line for each block: `0 -> 1-3`, or `sum 0-3 -> 0`.
        n_ranks: the number of ranks.

    Raises:
        UserError: E017 it is no demand; E401 to E404 the file cannot be read.
    """
    n_ranks = check_integer("n_ranks", n_ranks, 1, MAX_RANKS)
    text = isinstance(demand, str) and "->" in demand
    found = Source("<text>", str(demand)) if text else inputs.path_or_text(demand)
    return inputs.read_demand(found, n_ranks)


@python_words
def assemble(algorithm: Algorithm, collective: str = "allreduce") -> Program:
    """Makes an Allreduce, or a Reducescatter, of an Allgather: backwards its copies are sums.

    Args:
        algorithm: the Allgather, as for `compile`, or a schedule of TE-CCL.
        collective: "allreduce" or "reducescatter".

    Raises:
        UserError: E321 it is no program; E451 it is no Allgather, or brings a chunk twice to a
        rank; E465 `collective` is none.
    """
    return assembled(algorithm, collective_named(collective))


@python_words
def balance(speeds: Sequence[Speed], batch: int, *, least: int = 1) -> tuple[int, ...]:
    """Divides a batch among ranks that compute at different speeds: in their proportions, in whole
    numbers that add up to it, so that the slowest ends as soon as it can.

    The same speeds give the same shares, in every process. Where each rank takes the mean over its
    share, gradients are weighted by share / batch.

    Args:
        speeds: of each rank, what it does in a second; or of a short run `(samples, seconds)`.
        batch: samples, tokens or whatever a step has, of all ranks.
        least: what each rank takes at least.

    Raises:
        UserError: E410 a speed is no positive number; the batch is less than `least` for each.
    """
    from hccc.predict import balance

    return balance.balance(speeds, batch, least)


@python_words
@reporting
def show(
    subject: Given | Topology | Job,
    what: str | None = None,
    *,
    size: int | str = DEFAULT_SIZE,
    cluster: Cluster | None = None,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Picture:
    """Draws one picture; its `svg` is the drawing.

    Args:
        subject: a cluster or its file, or what `simulate` takes; of a job there is a timeline.
        what: `topology`, `dag`, `pipeline` or `timeline`; None for the pipeline of a program, and
            the topology of anything else.
        size: bytes of the call whose timeline is drawn.
        cluster: None for the one that it was compiled for, or for common nodes (`compile`).
        options: how to compile what is not compiled yet.
        on_phase: is told the name of each phase as it begins.

    Raises:
        UserError: E424, E434 for a picture that there cannot be.
    """
    from hccc.pictures import page

    size = check_size("size", size)
    if isinstance(subject, Job):
        from hccc.pictures.job_timeline import draw_job

        _check_of_job(options=options)
        return draw_job(*job_on(subject, cluster), what, size)
    shown = drawn(subject, cluster, options)
    if isinstance(shown, Topology):
        return page.draw_cluster(shown, what)
    return page.Subject(shown.at(size, False), topology_of(cluster), size).picture(what)


@python_words
@reporting
def draw(
    subject: Given | Topology,
    output: str | Path | None,
    what: str | None = None,
    *,
    trace: str | Path | None = None,
    size: int | str = DEFAULT_SIZE,
    cluster: Cluster | None = None,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> None:
    """Draws into a file, whole or not at all, what `show` would, or a page of everything.

    Args:
        output: an .svg or .png of one picture, or an .html, which without `what` has all of them.
        trace: a file for the predicted timeline as Perfetto reads it (JSON).

    The others are those of `show`.

    Raises:
        UserError: E415, E431, E433 for names that cannot be; what `show` raises.
    """
    from hccc.pictures import page
    from hccc.pictures.choices import ShowOptions

    size = check_size("size", size)
    paths = [None if path is None else Path(path) for path in (output, trace)]
    wanted = ShowOptions(paths[0], what, size, paths[1])
    wanted.check(*paths_of(subject), *paths_of(cluster))
    shown = drawn(subject, cluster, options)
    if isinstance(shown, Topology):
        return page.show_cluster(shown, wanted)
    return page.show(shown.at(size, False), wanted, topology_of(cluster))


@python_words
@reporting
def write(
    compiled: Compiled,
    directory: str | Path,
    targets: Sequence[str] = (),
    *,
    validate: bool = False,
    overwrite: bool = False,
    on_phase: OnPhase | None = None,
) -> Written:
    """Writes the directory of kernels, whole or not at all; only files that differ are touched.

    What is not proved yet is proved first.

    targets: any of `cuda`, `hip`, `cpu`; all without. validate: run the generated text on the host
    first, and compare all that it does with the plan; needs a C++ compiler. overwrite: also a
    directory that was made for another cluster.

    Raises:
        UserError: E410 for another target; the first proof that fails; the place is taken by
            something else, or by kernels for another cluster (E478), or cannot be written; E412,
            E438, E439 the text is not validated, and nothing is written.
    """
    from hccc.driver import outputs

    place = Path(directory)
    return outputs.write(compiled, place, targets, validated=validate, overwrite=overwrite)


@python_words
@reporting
def run(
    algorithm: Given | Job,
    sizes: Sizes | int | str = DEFAULT_SIZE,
    *,
    dtype: str | Sequence[str] = "float32",
    op: str | Sequence[str] = "sum",
    launches: int = 20,
    warmups: int = 5,
    check: bool = True,
    procs: int = 0,
    hosts: str = "",
    device: str = "cpu",
    skew: str | None = None,
    timeout: float = 30.0,
    vendors: str | None = None,
    cluster: Cluster | None = None,
    options: Options | None = None,
    on_phase: OnPhase | None = None,
) -> Measurement:
    """Runs all ranks of an algorithm on real data, checks every element of the results, and times
    the calls.

    Args:
        algorithm: what `simulate` takes. Of a directory of kernels the files must be what its plan
            emits. Of a job each rank is a process of its own.
        sizes: bytes of a call, one or a range.
        dtype, op: one or several; every pair that there can be is run.
        launches, warmups: that are timed, and before them.
        check: False compares no results.
        procs: processes that the ranks are in; 0: this one, or with hosts one for each.
        hosts: where the ranks run, "a:4,b:4", or a file of hosts.
        device: "cpu", "cuda" or "hip".
        skew: of the lengths of an uneven collective's blocks.
        timeout: seconds that a launch may wait; 0: for ever.
        vendors: of a job whose libraries serve the ranks, in their order: "mpich:4,own:2".
        cluster: None for this host, or for common nodes of GPUs where the device is one.

    Raises:
        UserError: the kernels cannot be built or launched, or a launch stood still; what `compile`
            raises.
    """
    from hccc.launch.measure import Measurement, RunOptions, measure
    from hccc.predict.simulation import Sizes

    span = (
        sizes
        if isinstance(sizes, Sizes)
        else Sizes(check_size("size", sizes), check_size("size", sizes))
    )
    wanted = RunOptions(
        minbytes=span.smallest,
        maxbytes=span.largest,
        stepfactor=span.factor,
        dtypes=(dtype,) if isinstance(dtype, str) else tuple(dtype),
        ops=(op,) if isinstance(op, str) else tuple(op),
        iters=check_integer("launches", launches, 1, None),
        warmup_iters=check_integer("warmups", warmups, 0, None),
        checks=int(check),
        procs=check_integer("procs", procs, 0, None),
        hosts=hosts,
        device=device,
        skew=skew,
        timeout=timeout,
    )
    what = algorithm if isinstance(algorithm, Compiled) else opened(algorithm)
    if isinstance(what, JobInput):
        _check_of_job(device=device != "cpu", options=options)
        return _run_job(what.job, wanted, vendors, cluster)
    if vendors is not None:
        raise fail("E416", "vendors has no effect: this is no job", help="leave it out")
    options = options or Options(sizes=span.text)
    compiled = compiled_of(what, cluster, options, [device])
    return Measurement(title(compiled.catalogue), tuple(measure(compiled, wanted)))


def _run_job(
    given: Source | Job, options: RunOptions, said: str | None, cluster: Cluster | None
) -> Measurement:
    """Runs a job. Raises as `run`."""
    from hccc.launch.job_runs import clusters_of, measure_job, vendor_of_ranks, vendors_of
    from hccc.launch.measure import Measurement
    from hccc.predict.jobs import micro_batches

    try:
        vendors = vendors_of(said) if said else ()
    except ValueError as error:
        raise fail("E473", f"vendors: {error}", help='"mpich:4,own:2"') from None
    job, where = job_and_cluster(given, cluster, clusters_of(vendors) if vendors else None)
    batches = micro_batches(job, where, options.maxbytes) if where else []
    rows = measure_job(job, options, vendor_of_ranks(vendors, job.clusters), batches)
    return Measurement(f"{job.name}: {job.collective.title}", tuple(rows))


def common_cluster(program: Program) -> Topology:
    """Returns nodes of the most common kind of as many GPUs as the program's header has, with as
    many NICs, by hccc's device library: the cluster of programs that none is given for."""
    return assumed.common_cluster(program)


def host_cluster(program: Program) -> Topology:
    """Returns this host with a rank for each of the program's, or as many hosts as its header has
    nodes, by what was measured (HCCC_CLUSTER) or usual figures: the cluster of `run`, and of
    kernels for CPUs."""
    return assumed.host_cluster(program)


@python_words
@reporting
def synthesize(
    cluster: Cluster,
    collective: str | Demand,
    size: int | str = DEFAULT_SIZE,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    seconds: float | None = None,
    options: Options | None = None,
    sketch: str | Path | Source | None = None,
    unpruned: Collection[str] = (),
    on_phase: OnPhase | None = None,
) -> Synthesis:
    """Makes an algorithm of one collective for a cluster and calls of `size` bytes.

    Args:
        cluster: its file, or the cluster.
        collective: its name, `allreduce`; or a demand of one's own (`load_demand`).
        size: bytes of a call, as nccl-tests counts them.
        root: of rooted collectives.
        method: a built-in algorithm (`hccc builtin list`), "greedy", "repair" (greedy, shortened by
            a solver), "cegis" (HeteCCL's) or "compose" (of one node of each kind); "auto" weighs
            all but "repair" and "cegis" by simulated time. Its `program` is for `compile`.
        seed: of ties.
        time_limit: seconds that a solver may take.
        seconds: of it all, once a candidate was simulated; None: as long as it takes, so that the
            same seed gives the same program.
        options: how candidates are compiled.
        sketch: sketches, a file or its text, which take the place of those that hccc finds.
        unpruned: prunings of sketches to do without: "isomorphic", "inconsistent", "relays".
        on_phase: is told the name of each phase as it begins.

    At Ctrl-C, once a candidate was simulated, it returns the best so far, and says so.

    Raises:
        UserError: E465 there is no such collective; E410 no such root; E451 nothing serves it on
            this cluster; what `load_cluster` raises.
    """
    from hccc.synth.synthesize import synthesize as synthesized

    where, op = collective_of(cluster, collective, root)
    bytes_of = check_integer("size", check_size("size", size), 1, None)
    return synthesized(
        where,
        op,
        bytes_of,
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        seconds=seconds,
        options=options,
        allotment=_sketches(sketch, where),
        unpruned=unpruned,
    )


def _sketches(sketch: str | Path | Source | None, t: Topology) -> Allotment | None:
    """Reads sketches of a cluster. Raises `UserError`."""
    return None if sketch is None else inputs.read_sketches(inputs.path_or_text(sketch), t)


@python_words
@reporting
def synthesize_sizes(
    cluster: Cluster,
    collective: str | Demand,
    sizes: str = "1K..4G",
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    seconds: float | None = None,
    options: Options | None = None,
    sketch: str | Path | Source | None = None,
    unpruned: Collection[str] = (),
    on_phase: OnPhase | None = None,
) -> SizesSynthesis:
    """Makes algorithms of one collective for a cluster, at most `options.plans`, each for those of
    `sizes` at which it is best. Its `programs` are for `compile`, which makes one library of them.

    sizes: bytes, a range. The others are those of `synthesize`, which also says what is raised.
    """
    from hccc.synth.synthesize import synthesize_sizes as synthesized

    where, op = collective_of(cluster, collective, root)
    return synthesized(
        where,
        op,
        sizes,
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        seconds=seconds,
        options=options,
        allotment=_sketches(sketch, where),
        unpruned=unpruned,
    )
