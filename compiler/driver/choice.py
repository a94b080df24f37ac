"""choice: which structures of programs are made, and which of them serve the sizes asked.

Without a cluster, or with `--tune off`, one structure of the first program is made. Else several of
each program (`structures`) are tried by simulated calls, and what suits the sizes is kept
(`tune/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import TYPE_CHECKING

from hccc.base.diagnostics import fail
from hccc.base.progress import quiet, tell, within
from hccc.driver.options import AUTO, Options
from hccc.driver.pass_manager import PassRunner, Settings, lower_to_plan, order
from hccc.driver.structures import MOST_TRIED, axes, named, start
from hccc.ir.catalogue import Catalogue, Range, assembled
from hccc.ir.dag import Dag
from hccc.ir.micro_batch import GRAIN
from hccc.ir.pipeline import Pipeline
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.passes.allocate import LOADS
from hccc.passes.limit_bytes import MOST_LL_BYTES

if TYPE_CHECKING:
    from hccc.driver.tune.tune import Tuned, TunedRange, TuneRequest


@dataclass(frozen=True, slots=True)
class Analysed:
    """A program before any choice: its Dag, and the settings that it is compiled with."""

    settings: Settings
    dag: Dag

    @property
    def program(self) -> Program:
        """The program, verified."""
        return self.dag.program


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """One way to lower a program: settings that leave nothing open, the Pipeline and the Plan."""

    settings: Settings
    pipeline: Pipeline
    plan: Plan

    @property
    def program(self) -> Program:
        """The program, verified."""
        return self.pipeline.dag.program


@dataclass(frozen=True, slots=True)
class Kernel:
    """A structure with a number of channels: what a plan of a library is."""

    structure: Structure
    channels: int

    @property
    def plan(self) -> Plan:
        """Its Plan; windows and grains are for ranges of sizes to say."""
        return replace(self.structure.plan, channels=self.channels, grain=GRAIN)

    @property
    def options(self) -> Options:
        """Options that leave nothing open and make the Plan again but for its window, its grain and
        its largest call."""
        settings = self.structure.settings
        blocks = settings.blocks
        most = settings.options.max_sms if blocks is None else blocks * self.channels
        return replace(settings.options, tune="off", channels=self.channels, max_sms=most)


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of choosing. plan: the best for all sizes if there were only one, best: its
    kernel; catalogue: the plans that serve the sizes, kernels: of those plans, in order; tuned: all
    that was tried, None where nothing was."""

    best: Kernel
    plan: Plan
    catalogue: Catalogue
    kernels: tuple[Kernel, ...]
    tuned: Tuned | None

    @property
    def structures(self) -> list[Structure]:
        """The structures that are used, each once, the best first."""
        return list(dict.fromkeys(k.structure for k in (self.best, *self.kernels)))


def choose(programs: Sequence[Analysed], name: str, enough: float, runner: PassRunner) -> Choice:
    """Makes the structures that are to be tried, and chooses. name: of the library of several
    plans, "" for the program's; enough: µs of a call that need not be beaten.

    Raises:
        UserError: E410 for options that nothing can serve; E323 for protocol auto on CPUs.
    """
    first = programs[0]
    _check_protocol(first.settings)
    if first.settings.topology is None or not first.settings.options.tuned:
        made = _lowered(first, start(first.settings, first.dag), runner)
        kernel = Kernel(made, made.plan.channels)
        return Choice(kernel, made.plan, Catalogue.of(made.plan), (kernel,), None)
    structures, tuned = _tuned(programs, enough, runner)
    of = {made.plan: made for made in reversed(structures)}  # what lowers alike is tried once
    plan = tuned.plan(tuned.best)
    best = _kernel(of, tuned, tuned.best)
    if first.settings.options.plans == 1:
        return Choice(best, plan, Catalogue.of(plan), (best,), tuned.alone())
    kernels = list(dict.fromkeys(_kernel(of, tuned, used.candidate) for used in tuned.ranges))
    catalogue = assembled(
        name or plan.name,
        [kernel.plan for kernel in kernels],
        [_range(of, tuned, kernels, used) for used in tuned.ranges],
    )
    if catalogue.alone:
        return Choice(kernels[0], catalogue.plans[0], catalogue, (kernels[0],), tuned)
    return Choice(best, plan, catalogue, tuple(kernels), tuned)


def _check_protocol(settings: Settings) -> None:
    """Raises UserError where protocol auto has nothing to choose by (E410), or packets cannot be
    simulated (E323)."""
    if settings.options.protocol != AUTO:
        return
    if settings.topology is None or not settings.options.tuned or settings.options.plans == 1:
        help = "give --cluster, and leave out --tune off and --plans 1; or --protocol simple or ll"
        raise fail("E410", "--protocol auto, and nothing to choose by", help=help)
    if settings.topology.cores.any():
        message = "--protocol auto: packets between processes of a host are not simulated, so far"
        help = "--protocol ll makes them, `hccc run` measures them; standard collectives have them"
        raise fail("E323", message, help=help)


def _tuned(
    programs: Sequence[Analysed], enough: float, runner: PassRunner
) -> tuple[list[Structure], Tuned]:
    """Makes structures of each program, tries each by simulated calls, and weighs them."""
    from hccc.driver.tune.explore import explore  # the simulator takes its time to load
    from hccc.driver.tune.tune import Tuner

    settings = programs[0].settings
    assert settings.topology is not None
    large = max(len(one.dag) for one in programs) > MOST_TRIED
    if not large:
        runner.remember()  # structures that differ in their thread blocks have the same order
    tuner = Tuner(settings.topology, _request(settings, large, enough))
    made: list[Structure] = []
    for one, prefix in zip(programs, _prefixes(programs), strict=True):
        says = f"Tuning {prefix}".removesuffix(": ").strip()
        tell(says)

        def make(choice: Settings, one: Analysed = one, says: str = says) -> Structure:
            with within(says) if large else quiet():  # its passes are part of tuning
                return _within(tuner.request.blocks, one, choice, runner)

        means = [inf]

        def probe(
            structure: Structure, prefix: str = prefix, says: str = says, means: list[float] = means
        ) -> float:
            made.append(structure)
            with runner.phase("Tuning", says):
                name = prefix + named(structure.settings, structure.plan)
                scheduled = structure.settings.options.allocator in LOADS
                best = min(means)
                means.append(tuner.probe(name, structure.plan, afresh=scheduled, best=best))
                return means[-1]

        begin = start(one.settings, one.dag)
        tried = axes(one.settings, one.dag)
        explore(begin, tried, make, probe, log(enough) if enough else -inf)
    with runner.phase("Tuning", "Tuning each size"):
        return made, tuner.finish()


def _prefixes(programs: Sequence[Analysed]) -> list[str]:
    """Returns how names of structures begin: with the program's, or where two programs have one
    name, with its file's; with nothing where there is only one program."""
    if len(programs) == 1:
        return [""]
    names = [one.program.name for one in programs]
    return [
        f"{name if names.count(name) == 1 else one.settings.source}: "
        for name, one in zip(names, programs, strict=True)
    ]


def _lowered(program: Analysed, settings: Settings, runner: PassRunner) -> Structure:
    pipeline = order(program.dag, settings, runner)
    return Structure(settings, pipeline, lower_to_plan(pipeline, settings, runner))


def _within(blocks: int, program: Analysed, settings: Settings, runner: PassRunner) -> Structure:
    """Lowers as `_lowered`, with few enough blocks a channel for all required channels to fit in
    `blocks`."""
    made = _lowered(program, settings, runner)
    most = max(1, blocks // (settings.options.channels or 1))
    fits = made.plan.blocks_per_rank <= most * made.plan.channels
    return made if fits else _lowered(program, replace(settings, blocks=most), runner)


def _kernel(of: Mapping[Plan, Structure], tuned: Tuned, candidate: int) -> Kernel:
    structure, channels = tuned.kernel(candidate)
    return Kernel(of[tuned.plans[structure]], channels)


def _range(
    of: Mapping[Plan, Structure], tuned: Tuned, kernels: Sequence[Kernel], used: TunedRange
) -> Range:
    """Returns the catalogue's range of one that was tuned."""
    setting = tuned.candidates[used.candidate].setting
    plan = kernels.index(_kernel(of, tuned, used.candidate))
    return Range(used.in_place, used.begin, plan, setting.window, setting.grain)


def _request(settings: Settings, large: bool, enough: float) -> TuneRequest:
    """Returns what to tune for. large: calls take long to simulate, so few sizes are tried."""
    from hccc.driver.tune.setting import most_blocks
    from hccc.driver.tune.sizes import parsed
    from hccc.driver.tune.tune import TuneRequest, spread

    options = settings.options
    assert settings.topology is not None
    sizes = parsed(options.sizes)
    if options.channels and options.max_sms and options.channels > options.max_sms:
        raise fail("E410", f"--channels {options.channels}: each has a block; --max-sms is less")
    if options.protocol == AUTO and sizes[-1] < MOST_LL_BYTES:
        sizes = (*sizes, MOST_LL_BYTES)  # longer calls are served, too, and not by packets
    return TuneRequest(
        spread(sizes) if large else sizes,
        options.max_sms or most_blocks(settings.topology),
        options.channels,
        options.plans,
        options.tune,
        enough,
    )
