"""hosts: measures several hosts, each by itself and the links within and between them."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hccc.base.diagnostics import Note, Problem, UserError, fail
from hccc.base.interruptible import interruptible
from hccc.base.progress import tell
from hccc.emit.targets import CPU
from hccc.ir.device import Cached
from hccc.ir.topology import check
from hccc.launch.hosts import Host, hosts_of
from hccc.launch.launch import launch
from hccc.launch.rank_commands import RankCommand
from hccc.launch.remote import Shell
from hccc.profile import links, measure
from hccc.profile.calibrate import UnitCosts
from hccc.profile.cluster_file import Profile
from hccc.profile.links import Exchange, MeasuredFlows
from hccc.profile.site import MeasuredSite, site_of

MOST_RANKS = 256  # of all hosts: an Alltoallv of all is compiled


@dataclass(frozen=True, slots=True)
class MeasuredHosts:
    """What was measured: a profile of each host, exchanges of pairs of ranks, flows at once."""

    hosts: tuple[Host, ...]
    profiles: tuple[Profile, ...]
    exchanges: tuple[Exchange, ...]
    flows: tuple[MeasuredFlows, ...]
    site: MeasuredSite
    warnings: tuple[Problem, ...]

    def facts(self) -> dict[str, Any]:
        """Returns all samples, for JSON."""
        return {
            "hosts": [
                {"host": host.name, "ranks": len(host.ranks), **asdict(p)}
                for host, p in zip(self.hosts, self.profiles, strict=True)
            ],
            "exchanges": [asdict(e) | asdict(e.line) for e in self.exchanges],
            "flows": [asdict(f) for f in self.flows],
            "warnings": [problem.message for problem in self.warnings],
        }


def hosts_to_measure(text: str) -> list[Host]:
    """Returns the hosts of `--hosts`. Raises UserError E474 for a host that is given twice, and for
    too many ranks."""
    hosts = hosts_of(text)
    name, times = Counter(host.name for host in hosts).most_common(1)[0]
    if times > 1:
        raise fail("E474", f"--hosts: {name} is given {times} times", help="give each host once")
    if (ranks := hosts[-1].ranks.stop) > MOST_RANKS:
        message = f"--hosts: {ranks} ranks, and at most {MOST_RANKS} can be measured"
        raise fail("E474", message, help="fewer ranks on each host: a:2,b:2")
    return hosts


def measure_hosts(hosts: Sequence[Host], shell: Shell, ranks: int, seconds: float) -> MeasuredHosts:
    """Measures each host with programs of so many ranks for so many seconds, then, for as long,
    links within and between hosts.

    Raises:
        UserError: E474 a host cannot be reached, or has another hccc; an error of a host.
    """
    return interruptible(_measured)(hosts, shell, ranks, seconds)


def measure_processes(procs: int, ranks: int, seconds: float) -> MeasuredHosts:
    """Measures this host as one of several is measured: its CPU, and the links between two of
    `procs` processes.

    Raises:
        UserError: E474 processes cannot start; as `measure.profile`.
    """
    return interruptible(_measured_here)(procs, ranks, seconds)


def _measured_here(procs: int, ranks: int, seconds: float) -> MeasuredHosts:
    hosts = [Host(socket.gethostname(), range(procs))]
    profiles = [measure.profile(CPU.name, ranks, seconds)]
    return _of_site(hosts, profiles, links.within(hosts, None, seconds), [], [])


def _measured(hosts: Sequence[Host], shell: Shell, ranks: int, seconds: float) -> MeasuredHosts:
    profiles = _profiles(hosts, shell, ranks, seconds)
    within = links.within(hosts, shell, seconds)
    between = links.between(hosts, shell, seconds) if len(hosts) > 1 else []
    flows: list[MeasuredFlows] = []
    if len(hosts) > 1:
        rate = min(e.line.rate for e in between)
        flows = links.at_once(hosts, shell, rate, seconds)
    return _of_site(hosts, profiles, within, between, flows)


def _of_site(
    hosts: Sequence[Host],
    profiles: Sequence[Profile],
    within: Sequence[Exchange],
    between: Sequence[Exchange],
    flows: Sequence[MeasuredFlows],
) -> MeasuredHosts:
    """Makes a site of what was measured."""
    tell("Simulating what was measured")
    names, sizes = [host.name for host in hosts], [len(host.ranks) for host in hosts]
    site, warnings = site_of(names, profiles, sizes, within, between, flows)
    return MeasuredHosts(
        tuple(hosts), tuple(profiles), (*within, *between), tuple(flows), site, tuple(warnings)
    )


def _profiles(hosts: Sequence[Host], shell: Shell, ranks: int, seconds: float) -> list[Profile]:
    """Measures the CPU of each host by `hccc profile` there, all at once."""
    tell(f"Measuring {len(hosts)} host{'s' * (len(hosts) > 1)}")
    printed: list[list[str]] = [[] for _ in hosts]

    def on_line(rank: int, text: str, to: int) -> None:
        if to == 1:
            printed[rank].append(text)

    words = ("hccc", "profile", "--device", "cpu", "--ranks", f"{ranks}", "--time", f"{seconds:g}")
    command = RankCommand((*words, "--json"), True, len(hosts), "/")
    placed = [Host(host.login, range(i, i + 1)) for i, host in enumerate(hosts)]
    try:
        launch(command, placed, shell, on_line=on_line)
    except UserError as error:
        for host, lines in zip(hosts, printed, strict=True):
            if said := _error("".join(lines)):
                raise fail(said.code, f"host {host.name}: {said.message}", notes=said.notes) from (
                    error
                )
        raise
    return [_profile(host, "".join(lines)) for host, lines in zip(hosts, printed, strict=True)]


def _error(text: str) -> Problem | None:
    """Returns the error that a host printed as JSON, if it did."""
    try:
        fields = json.loads(text)["error"]
        note = (Note(str(fields["help"])),) if fields.get("help") else ()
        return Problem(str(fields["code"]), str(fields["message"]), notes=note)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _profile(host: Host, text: str) -> Profile:
    """Reads the profile that a host printed as JSON. Raises UserError E474 for anything else, and
    where no cluster can be made of it."""
    try:
        (fields,) = json.loads(text)["profiles"]
        del fields["cluster"]
        costs = fields.pop("costs")
        cache = tuple(Cached(int(size), *map(float, rates)) for size, *rates in costs.pop("cache"))
        found = Profile(**fields, costs=UnitCosts(**costs, cache=cache))
        if problems := check(found.topology):
            raise ValueError("; ".join(problems))
        return found
    except (ValueError, LookupError, TypeError, UserError) as error:
        message = f"host {host.name}: what `hccc profile` printed there is no profile"
        raise fail("E474", message, help="look at what its shell prints by itself") from error
