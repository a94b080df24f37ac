"""options: options that commands share, and loading their inputs.

The options of a compilation are the fields of `hccc.driver.options.Options`, declared there. Slow
imports (the language, the passes, NumPy and numba below them) are left to the commands that need
them, so that `hccc --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hccc.base.diagnostics import fail
from hccc.base.dtypes import is_own
from hccc.base.progress import tell
from hccc.cli.types import AlgorithmFile, ClusterFile, File, MicroBatch, Number, Size
from hccc.driver.options import Options, PassName, selectable
from hccc.ir.choices import PlanProtocol
from hccc.ir.op_type import SKEWED
from hccc.ir.transport import Transport
from hccc.sim.costs import PROTOCOLS

if TYPE_CHECKING:
    from hccc.driver.compilation import Where
    from hccc.driver.compiled import Compiled
    from hccc.driver.inputs import Input
    from hccc.ir.demand import Demand
    from hccc.ir.topology import Topology
    from hccc.predict.simulation import Call

CALLS = {"in-place": True, "out-of-place": False, "both": None}
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
Command = TypeVar("Command", bound=Callable[..., Any])

time_phases_option = click.option(
    "--time-phases", is_flag=True, help="Print the time of each phase on stderr."
)
_FAIL = click.option(
    "--fail",
    "failed",
    multiple=True,
    metavar="NODE.GPU",
    help="Without this GPU, node2.gpu3, or NIC, node2.nic0; may be given again.",
)
_DEGRADE = click.option(
    "--degrade",
    "degraded",
    multiple=True,
    metavar="WHAT=RATE",
    help="Slower than the cluster says: node1.nic=18Gbps, node1.nic0=2.25, leaf1=50, or "
    "node1-node2=18Gbps: all ways between two nodes, in each direction.",
)
_HOSTS = (
    click.option(
        "--hosts",
        default="",
        show_default=False,
        metavar="HOSTS",
        help="Where the ranks run: a:4,b:4, or a file with lines `host slots=4`.",
    ),
    click.option("--rsh", metavar="COMMAND", help="The remote shell: HCCC_RSH, else ssh."),
    click.option(
        "--remote-python",
        metavar="FILE",
        help="The Python with hccc on the hosts: HCCC_REMOTE_PYTHON, else the path of this one.",
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Report as JSON, errors too.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Also a directory that was made for another cluster."
)
algorithm_argument = click.argument("algorithm", type=AlgorithmFile(), metavar="ALGO")
_MORE = {
    "reschedule": click.option(
        "--reschedule", is_flag=True, help="Schedule what MSCCL XML does anew."
    ),
    "cluster": click.option(
        "--cluster",
        type=ClusterFile(),
        metavar="FILE",
        help="Schedule for this .cluster. Without it: nodes as the header says, of common GPUs; "
        "--target cpu, `run`: this host; `check`: none. "
        "Of MSCCL XML: its memory domains.",
    ),
    "print_after": click.option(
        "--print-after",
        type=click.Choice([one.value for one in PassName]),
        metavar="PASS",
        help=f"Print on stderr what a pass returns: {', '.join(PassName)}.",
    ),
}


demand_option = click.option(
    "--demand",
    type=File(),
    metavar="FILE",
    help="Instead of a collective: who has, and who must get, each block; a line `0 -> 1-3` for "
    "each, `sum 0-3 -> 0` for a sum.",
)


def collective_or_demand(collective: object, demand: Path | None, *, one: bool) -> None:
    """Refuses a collective and a demand together, and, where `one` must be given, neither. Raises
    UserError E415."""
    if (collective is not None and demand is not None) or (one and collective is demand):
        help = "--collective allgather, or --demand FILE"
        raise fail("E415", "give either a collective or a demand", help=help)


def demand_of(path: Path, n_ranks: int) -> Demand:
    """Reads the demand in a file, among the ranks of a cluster. Raises UserError."""
    from hccc.driver.inputs import read_demand

    return read_demand(path, n_ranks)


def faults_options(command: Command) -> Command:
    """Adds `--fail` and `--degrade`: faults of a cluster."""
    return _FAIL(_DEGRADE(command))


def hosts_options(command: Command) -> Command:
    """Adds `--hosts`, and how they are reached."""
    for option in reversed(_HOSTS):
        command = option(command)
    return command


def _click_option(name: str, default: Any, metadata: Any) -> Callable[[Any], Any]:
    """Makes the option of one field of `Options`."""
    flag, help = f"--{name.replace('_', '-')}", metadata["help"]
    if choices := metadata.get("choices"):
        default = default.name.lower() if isinstance(default, Transport) else default
        return click.option(flag, type=click.Choice(choices), default=default, help=help)
    if limits := metadata.get("range"):
        return click.option(flag, type=click.IntRange(*limits), default=default, help=help)
    if isinstance(default, str):
        return click.option(flag, default=default, show_default=True, help=help)
    return click.option(flag, is_flag=True, help=help)


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of `compile_options`. given: the names of those on the command line."""

    options: Options
    cluster: Path | None
    reschedule: bool
    print_after: str | None
    given: tuple[str, ...]

    def where(self, *targets: str) -> Where:
        """Returns the cluster to compile for, or what makes it of the program where none is given.

        targets: that kernels are for; all without. Raises UserError for a wrong --cluster.
        """
        from hccc.api.arguments import where

        return where(self.cluster and self.load_cluster(), self.options, targets)

    def load_cluster(self) -> Topology | None:
        """Loads the cluster of `--cluster`, if there is one. Raises UserError for a wrong one."""
        if self.cluster is None:
            return None
        from hccc.driver.inputs import load_cluster

        return load_cluster(self.cluster)


def compile_options(command: Command) -> Command:
    """Adds the options of a compilation."""
    own = [_click_option(f.name, f.default, f.metadata) for f in selectable()]
    for option in reversed([*own, *_MORE.values(), time_phases_option, json_option]):
        command = option(command)
    return command


def size_options(smallest: str, largest: str, factor: float = 4) -> Callable[[Command], Command]:
    """Adds `-b -e -f` of nccl-tests."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "-f",
                "--stepfactor",
                type=Number(1, 1000, min_open=True),
                default=factor,
                help="The factor between sizes.",
            ),
            click.option("-e", "--maxbytes", type=Size(), default=largest, help="Largest size."),
            click.option("-b", "--minbytes", type=Size(), default=smallest, help="Smallest size."),
        ):
            command = option(command)
        return command

    return add


_MICROSECONDS = Number(0, 1_000_000)
_CALL: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--micro-batch",
        type=MicroBatch(),
        default=0,
        metavar="SIZE|best",
        help="Bytes that a channel moves at once; 0: as the runtime cuts calls; best: the fastest "
        "of several.",
    ),
    click.option(
        "--window", type=click.IntRange(0), default=0, help="Micro-batches at once; 0: all."
    ),
    click.option("--in-place", is_flag=True, help="Simulate calls in place."),
    click.option(
        "--protocol",
        type=click.Choice(tuple(PROTOCOLS), case_sensitive=False),
        default="Simple",
        help="Flags beside the data, or in every 16 or 128 bytes. A program is compiled to packets "
        "for ll; else the time is what such kernels would take.",
    ),
    click.option(
        "--launch",
        type=_MICROSECONDS,
        help="µs before the first step.  [default: as the cluster says]",
    ),
    click.option("--step", type=_MICROSECONDS, default=0, help="µs that each step takes more."),
    click.option(
        "--interpret",
        type=_MICROSECONDS,
        default=0,
        help="µs that each step takes more as an interpreter decodes it.",
    ),
    click.option(
        "--contention",
        type=Number(0, 1000),
        default=0,
        help="Capacity that a link loses where thread blocks offer it more than it takes (ResCCL "
        "Eq. 1).",
    ),
    click.option(
        "--skew",
        type=click.Choice(SKEWED),
        help="Lengths of the blocks of an uneven collective; sizes are of the longest.",
    ),
)
CALL = (
    "micro_batch",
    "window",
    "in_place",
    "protocol",
    "launch",
    "step",
    "interpret",
    "contention",
    "skew",
)
CALL_OF_PLANS = tuple(name for name in CALL if name != "skew")  # without effect on jobs


def call_options(command: Command) -> Command:
    """Adds the options of a simulated call: the fields of `predict.Call`. Its protocol, which may
    be one that no kernels have, takes the place of a compilation's (`load_simulated`)."""
    own: Any = command
    own.__click_params__ = [p for p in own.__click_params__ if p.name != "protocol"]
    for option in reversed(_CALL):
        command = option(command)
    return command


def call(options: Mapping[str, Any]) -> Call:
    """Returns the call that `call_options` describe."""
    from hccc.predict.simulation import Call

    return Call(**{name: options[name] for name in CALL})


def command_options(options: dict[str, Any], *, prove: bool = True) -> CommandOptions:
    """Returns the options of `compile_options`, out of all options of a command.

    Raises:
        UserError: E415 where stdin would be read twice.
    """
    given_to = click.get_current_context().params
    algorithms = given_to["algorithms"] if "algorithms" in given_to else [given_to["algorithm"]]
    if [str(options["cluster"]), *map(str, algorithms)].count("-") > 1:
        raise fail("E415", "`-` is given twice, and stdin is read once", help="give a file")
    own = {f.name: options[f.name] for f in selectable()}
    if own["protocol"] in PROTOCOLS:
        del own["protocol"]  # a simulated call's
    own["transport"] = Transport[own["transport"].upper()]
    return CommandOptions(
        Options(**own, prove=prove),
        options["cluster"],
        options["reschedule"],
        options["print_after"],
        given(*own, "cluster", "print_after"),
    )


def with_reductions(how: CommandOptions, reductions: Iterable[Sequence[str]]) -> CommandOptions:
    """Returns the options with reductions of one's own, which `--op` gives."""
    texts = tuple(dict.fromkeys(text for some in reductions for text in some if is_own(text)))
    if not texts:
        return how
    options = replace(how.options, reductions=texts)
    return replace(how, options=options, given=(*how.given, "op"))


def given(*names: str) -> tuple[str, ...]:
    """Returns those of these options that are on the command line."""
    source = click.get_current_context().get_parameter_source
    return tuple(name for name in names if source(name) is not ParameterSource.DEFAULT)


def refuse(names: Iterable[str], why: str, help: str) -> None:
    """Refuses options that somebody gave and that would be ignored. Raises UserError E416."""
    if shown := ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names)):
        raise fail("E416", f"{shown} has no effect: {why}", help=help)


def load(
    algorithm: Path | Input,
    how: CommandOptions,
    topology: Where,
    *,
    simulated: bool = False,
    checked: bool = False,
) -> Compiled:
    """Compiles or reads an algorithm. simulated: `--cluster` also says where to simulate; checked:
    what was compiled before is proved, and a directory's files are compared."""
    tell("Starting")
    if simulated or (topology is not None and how.options.tune != "off"):
        _begin_building()
    from hccc.api import functions as api
    from hccc.cli import report
    from hccc.driver.inputs import DirectoryInput, PlanInput, XmlInput, name_of, opened

    given = opened(algorithm)
    if isinstance(given, PlanInput | XmlInput | DirectoryInput) and not how.reschedule:
        takes = {"deterministic"}
        if simulated or isinstance(given, XmlInput):
            takes.add("cluster")
        unused = [name for name in how.given if name not in takes]
        help = "give it when you compile the program"
        if isinstance(given, XmlInput):
            help = "with --reschedule it is scheduled anew, by all these options"
        refuse(unused, f"{name_of(given)} is compiled already", help)
    compiled = (api.check if checked else api.compile)(
        given,
        how.options,
        cluster=topology,
        reschedule=how.reschedule,
        on_pass=_printer(how),
    )
    report.warnings(compiled.warnings)
    return compiled


def load_library(
    algorithms: Sequence[Path],
    how: CommandOptions,
    site: Where,
    name: str,
) -> Compiled:
    """Compiles several programs into one library."""
    _begin_building()
    from hccc.api import functions as api
    from hccc.cli import report

    compiled = api.compile(
        algorithms,
        how.options,
        cluster=site,
        name=name,
        on_pass=_printer(how),
    )
    report.warnings(compiled.warnings)
    return compiled


def _begin_building() -> None:
    """Starts building the simulator while the command imports and reads its inputs."""
    from hccc.sim.library import begin_building

    begin_building()


def _printer(how: CommandOptions) -> Callable[[str, Any], None]:
    """Returns the callback that prints the IR after the pass of `--print-after`."""

    def on_pass(name: str, ir: Any) -> None:
        if name == how.print_after:
            from hccc.driver import outputs

            click.echo(f"# after {name}", err=True)
            for line in outputs.lines(ir):
                click.echo(line, err=True)

    return on_pass


def load_simulated(
    algorithm: Path | Input, how: CommandOptions
) -> tuple[Compiled, Topology | None]:
    """Compiles or reads an algorithm to be simulated, and loads the cluster of `--cluster`. With
    `--protocol ll` a program is compiled to packets.

    Raises E424 before any work.
    """
    tell("Starting")
    from hccc.driver.assumed import common_cluster
    from hccc.driver.inputs import ProgramInput, opened
    from hccc.predict.simulation import check_cluster

    given, topology = opened(algorithm), how.load_cluster()
    if click.get_current_context().params["protocol"] == "LL" and isinstance(given, ProgramInput):
        how = replace(how, options=replace(how.options, protocol=PlanProtocol.LL.value))
    if not how.reschedule:
        check_cluster(given, topology)
    return load(given, how, topology or common_cluster, simulated=True), topology
