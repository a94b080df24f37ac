"""api: what `import hccc` offers: the functions behind the commands of the same names.

    import hccc

    site = hccc.load_cluster("site.cluster")
    compiled = hccc.compile("ring.rccl", cluster=site)
    print(hccc.simulate(compiled, [1 << 20, 1 << 26]).text())
    hccc.write(compiled, "kernels")

Everything wrong with what is given is one exception, `UserError`; its `problem` is the diagnostic:
a code, a message, the place in the text with its line and columns, notes and help, and
`str(error)` is what the command line prints. Sizes are in bytes, times in µs, bandwidths in GB/s
(10⁹ bytes/s). Values are frozen, and arrays in them read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hccc import driver, inputs, outputs
from hccc.diagnostics import Source
from hccc.driver import Compiled, OnPass, OnPhase
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.options import Options
from hccc.outputs import Written
from hccc.pictures.canvas import Picture
from hccc.pictures.page import Subject, draw_cluster
from hccc.predict import explanation, simulation
from hccc.predict.explanation import Explanation
from hccc.predict.simulation import Call, Simulation, Sizes
from hccc.proofs.prove import check_plan

Given = str | Path | Source | Program | Plan | Compiled
DEFAULT_SIZE = 64 << 20


def compile(
    algorithm: str | Path | Source | Program,
    options: Options | None = None,
    *,
    cluster: Topology | str | Path | None = None,
    reschedule: bool = False,
    on_phase: OnPhase = lambda _: None,
    on_pass: OnPass = lambda name, ir: None,
) -> Compiled:
    """Compiles an algorithm into a proved Plan.

    Args:
        algorithm: a path (a program, a plan's JSON, MSCCL XML, or a directory of kernels; what it
            holds tells), the text of one (a `str` of more than one line, or a `Source`), or a
            Program.
        options: how; those of the command line.
        cluster: what to schedule for, or its file; None for what the program's header describes.
        reschedule: raise MSCCL XML to a program, and schedule that.
        on_phase: is told the name of each phase as it begins.
        on_pass: is given the name of each pass and the IR that it returned.

    Raises:
        UserError: anything wrong with the algorithm, the options or the cluster.
    """
    topology = _topology(cluster)
    if isinstance(algorithm, Program):
        return driver.compile_program(
            algorithm, options, topology, on_phase=on_phase, on_pass=on_pass
        )
    return inputs.load(
        _source(algorithm), options, topology,
        reschedule=reschedule, on_phase=on_phase, on_pass=on_pass,
    )  # fmt: skip


def check(
    algorithm: Given,
    options: Options | None = None,
    *,
    cluster: Topology | str | Path | None = None,
) -> Compiled:
    """Proves an algorithm right; `proofs` of what it returns says what holds.

    Of a directory of kernels the files are compared with what its plan emits, too (`sources`).
    Takes what `compile` takes, a Plan, and what was compiled, whose plan is proved again.

    Raises:
        UserError: the first proof that fails, or anything wrong with what is given.
    """
    if isinstance(algorithm, Compiled):
        return replace(algorithm, proofs=check_plan(algorithm.plan))
    if isinstance(algorithm, Plan):
        return Compiled(algorithm, check_plan(algorithm))
    compiled = compile(algorithm, replace(options or Options(), prove=True), cluster=cluster)
    return outputs.compared(compiled)


def simulate(
    algorithm: Given,
    sizes: Sequence[int] | Sizes | int = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Topology | str | Path | None = None,
    vs: bool = False,
    options: Options | None = None,
    on_phase: OnPhase = lambda _: None,
) -> Simulation:
    """Predicts what calls take on a cluster.

    Args:
        algorithm: what `compile` takes, a Plan, or what was compiled.
        sizes: bytes of each call, as nccl-tests counts them; one, several, or a range of them.
        call: window, micro-batch, protocol and what else a call may choose.
        cluster: None for the one that it was compiled for.
        vs: also NCCL's rings and trees, and the algorithm as MSCCL would run it.
        options: how to compile what is not compiled yet, and the baselines.

    Raises:
        UserError: E424 without a cluster; whatever cannot be simulated.
    """
    compiled = _compiled(algorithm, options, cluster)
    where = simulation.cluster_of(compiled, _topology(cluster))
    return simulation.simulate_sizes(
        compiled, where, _sizes(sizes), call or Call(), (options or Options()) if vs else None,
        on_phase,
    )  # fmt: skip


def explain(
    algorithm: Given,
    size: int = DEFAULT_SIZE,
    call: Call | None = None,
    *,
    cluster: Topology | str | Path | None = None,
    options: Options | None = None,
    on_phase: OnPhase = lambda _: None,
) -> Explanation:
    """Says why a call of `size` bytes takes its time on a cluster, and what would help.

    Takes and raises what `simulate` does.
    """
    compiled = _compiled(algorithm, options, cluster)
    where = simulation.cluster_of(compiled, _topology(cluster))
    request = (call or Call()).settled(compiled.plan, where, size)
    return explanation.explain(compiled, where, request, options, on_phase)


def show(
    subject: Given | Topology,
    what: str | None = None,
    *,
    size: int = DEFAULT_SIZE,
    cluster: Topology | str | Path | None = None,
    options: Options | None = None,
) -> Picture:
    """Draws one picture; its `svg` is the drawing.

    Args:
        subject: a cluster, or what `simulate` takes.
        what: `topology`, `dag`, `pipeline` or `timeline`; None for the pipeline of a program, and
            the topology of anything else.
        size: bytes of the call whose timeline is drawn.

    Raises:
        UserError: E424, E434 for a picture that there cannot be.
    """
    if isinstance(subject, Topology):
        return draw_cluster(subject)
    compiled = _compiled(subject, options, cluster)
    drawn = Subject(compiled, _topology(cluster), size, lambda _: None)
    return drawn.picture(what or ("pipeline" if compiled.pipeline else "topology"))


def write(compiled: Compiled, directory: str | Path, targets: Sequence[str] = ()) -> Written:
    """Writes the directory of kernels, whole or not at all; only files that differ are touched.

    targets: any of `cuda`, `hip`, `cpu`; all without.

    Raises:
        UserError: the place is taken by something else, or cannot be written.
    """
    return outputs.write(compiled, Path(directory), targets)


def load_cluster(cluster: str | Path | Source) -> Topology:
    """The cluster in a file, or in a text (a `str` of more than one line, or a `Source`).

    Raises:
        UserError: anything wrong with it.
    """
    given = _source(cluster)
    return inputs.load_cluster(given) if isinstance(given, Path) else inputs.parse_cluster(given)


def _source(given: str | Path | Source) -> Path | Source:
    if isinstance(given, str) and "\n" in given:
        return Source("<text>", given)
    return given if isinstance(given, Source) else Path(given)


def _topology(cluster: Topology | str | Path | None) -> Topology | None:
    if cluster is None or isinstance(cluster, Topology):
        return cluster
    return load_cluster(cluster)


def _compiled(
    given: Given, options: Options | None, cluster: Topology | str | Path | None
) -> Compiled:
    match given:
        case Compiled():
            return given
        case Plan():
            return Compiled(given)
        case _:
            return compile(given, options, cluster=cluster)


def _sizes(sizes: Sequence[int] | Sizes | int) -> Sizes | Sequence[int]:
    return (sizes,) if isinstance(sizes, int) else sizes
