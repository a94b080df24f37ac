"""`hccc profile`: this machine as a cluster."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hccc.base.diagnostics import fail
from hccc.cli import report
from hccc.cli.helps import HelpfulCommand
from hccc.cli.options import hosts_options, json_option
from hccc.cli.progress import progress
from hccc.cli.types import Duration, File, Words
from hccc.driver.options import TARGETS


@click.command(
    short_help="Measure this machine, or several hosts, into a .cluster.",
    cls=HelpfulCommand,
    examples=[
        "hccc profile --device cpu --ranks 4 -o here.cluster",
        "hccc profile --procs 4 -o here.cluster",
        "hccc profile --hosts a:2,b:2 -o site.cluster",
        'hccc profile --hosts ns1:2,ns2:2 --rsh "ip netns exec" -o site.cluster',
    ],
)
@click.option("-o", "--output", type=File(), metavar="FILE", help="Instead of stdout.")
@click.option(
    "--device", "devices", type=Words(TARGETS), help="Any of cpu,cuda,hip. [default: those present]"
)
@click.option(
    "--ranks",
    type=click.IntRange(4, 16),
    default=8,
    help="Ranks of the programs that are launched.",
)
@click.option(
    "--time",
    "seconds",
    type=Duration(),
    default="10s",
    help="How long on each device, and for each kind of link between hosts: 30s, 10m.",
)
@click.option(
    "--procs",
    type=click.IntRange(2, 256),
    help="Processes of this host: the links between them are measured, too.",
)
@hosts_options
@json_option
def profile(
    output: Path | None,
    devices: tuple[str, ...] | None,
    ranks: int,
    seconds: float,
    procs: int | None,
    hosts: str,
    rsh: str | None,
    remote_python: str | None,
    as_json: bool,
) -> None:
    """Measure this machine: α, launches, thread blocks, reductions, links; write it as a .cluster.

    With several devices each has a file of its own: FILE-cpu, FILE-cuda. With --hosts the CPU of
    each host is measured, then the links within hosts and between them, by processes as `hccc run
    --hosts` starts them; a network namespace is a host. With --procs it is this host alone.
    """
    from hccc.profile import cluster_file

    if hosts and procs:
        message = "--hosts and --procs: hosts say how many processes each has"
        raise fail("E415", message, help="leave --procs out, as in --hosts a:4,b:4")
    if hosts or procs:
        _of_processes(procs, hosts, rsh, remote_python, output, devices, ranks, seconds, as_json)
        return
    from hccc.profile.measure import ProfileOptions, check_devices
    from hccc.profile.measure import profile as measure

    options = ProfileOptions(devices, ranks, seconds)
    present = check_devices(options)
    to_file = output is not None and str(output) != "-"
    if len(present) > 1 and not to_file and not as_json:
        named = ", ".join(present)
        raise fail("E415", f"there are several devices: {named}", help="--device one, or -o FILE")
    paths = [cluster_file.place(output, d, present) for d in present] if output and to_file else []
    cluster_file.check_free(paths)
    with progress():
        profiles = [measure(d, ranks, seconds) for d in present]
    texts = [cluster_file.text(p) for p in profiles]
    files = dict(zip(paths, texts, strict=False))
    cluster_file.write(files)
    if as_json:
        facts = [asdict(p) | {"cluster": text} for p, text in zip(profiles, texts, strict=True)]
        report.as_json({"profiles": facts, "files": [str(path) for path in files]})
    elif files:
        for path, p in zip(files, profiles, strict=True):
            print(f"{p.name} → {path}\n{cluster_file.summary(p)}")
    else:
        print(texts[0], end="")


def _of_processes(
    procs: int | None,
    text: str,
    rsh: str | None,
    remote_python: str | None,
    output: Path | None,
    devices: tuple[str, ...] | None,
    ranks: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Measures hosts, or this one by its processes, and writes them as one cluster."""
    from hccc.launch.remote import Shell
    from hccc.profile import cluster_file
    from hccc.profile.hosts import hosts_to_measure, measure_hosts, measure_processes

    if devices not in (None, ("cpu",)):
        option = "--procs" if procs else "--hosts"
        message = f"{option} --device {','.join(devices or ())}: GPUs of hosts are not measured yet"
        raise fail("E415", message, help="--device cpu, or `hccc profile` on each host")
    hosts, shell = [] if procs else hosts_to_measure(text), Shell.of(rsh, remote_python)
    file = output if output is not None and str(output) != "-" else None
    cluster_file.check_free([file] if file else [])
    with progress():
        if procs:
            found = measure_processes(procs, ranks, seconds)
        else:
            found = measure_hosts(hosts, shell, ranks, seconds)
    made = found.site.text()
    if file:
        cluster_file.write({file: made})
    report.warnings(found.warnings)
    if as_json:
        files = [str(file)] if file else []
        report.as_json({**found.facts(), "cluster": made, "files": files})
    elif file:
        n = len(found.hosts)
        ranks = found.hosts[-1].ranks.stop
        print(f"{n} host{'s' * (n > 1)}, {ranks} ranks → {file}")
        print("\n".join(line.removeprefix("# ") for line in found.site.comments()))
    else:
        print(made, end="")
