"""cluster_file: writes the result of `hccc profile` as a cluster file that says how it was
measured.

Files are written whole or not at all, and never over a file of another origin.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TextIO

import numpy as np

from hccc.base.diagnostics import Source, fail
from hccc.base.files.writing import check_place, named_errors, replace_all
from hccc.base.version import __version__
from hccc.ir.device import Cached
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.profile.calibrate import FASTEST, UnitCosts
from hccc.profile.probes import DTYPE
from hccc.runtime.cpu import SMALL_LAUNCH

FIRST_LINE = "# Measured by `hccc profile`"
CHUNK = 256 << 10  # bytes of a micro-batch that costs are for


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurements of one device.

    vendor, name: the device's; tools: that built the kernels; cores: shared by the thread blocks, 0
    on a GPU; total: GB/s that all ranks copy at once; kinds, rounds, launches, seconds: the amount
    of launching; spread: how much slower the median launch is than the time that counts (a part, in
    the median over kinds); error_small, error_large: `UnitCosts.error`.
    """

    device: str
    vendor: str
    name: str
    tools: str
    ranks: int
    cores: int
    costs: UnitCosts
    total: float
    kinds: int
    rounds: int
    launches: int
    spread: float
    error_small: float
    error_large: float
    seconds: float
    date: str

    @property
    def topology(self) -> Topology:
        """The machine as a cluster of one node."""
        return cluster.parse(Source(f"{self.device}.cluster", text(self)))


def text(p: Profile) -> str:
    """Writes the cluster file: how each number was measured, and the machine as one node."""
    lines = [
        *commented(_comments(p)),
        f"define chunk = {CHUNK}",
        "define nodenum = 1",
        *node_lines(p, 1, f"{p.ranks}", p.ranks, p.costs.alpha),
    ]
    return "\n".join(lines) + "\n"


def commented(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yields paragraphs as lines of comments."""
    return (f"# {line}" for paragraph in paragraphs for line in wrap(paragraph, 98))


def node_lines(p: Profile, number: int, size: str, ranks: int, alpha: float) -> Iterator[str]:
    """Yields the lines of node `number`, which is like `p`.

    size: `4` or `2 * 4`; ranks: of one node; alpha: µs of its links.
    """
    printable = re.sub(r"[^A-Za-z0-9 ._+-]+", " ", re.sub(r"\((R|TM)\)", "", p.name))
    name = " ".join(printable.split()).lstrip(" ._+-")[:64] or p.device
    f = p.costs
    speeds = f"reduce => {digits(f.reduce)}, block => {digits(f.block)}"
    if f.cache:
        cache = ", ".join(f"({_size(x.size)} -> {_rates(x)})" for x in f.cache)
        speeds += f", read => {digits(f.read)}, step => {digits(f.alpha)},\n"
        speeds += "\n".join(
            wrap(f"cache => [{cache}]", 98, initial_indent=4 * " ", subsequent_indent=14 * " ")
        )
    yield f"define node{number} = {size}"
    if p.cores:
        yield f"define cores = {p.cores}"
    yield f"define launch = {_launch(p)}"
    yield f'define device = {{vendor => "{p.vendor}", name => "{name}", {speeds}}}'
    if ranks > 1:
        link, kind = (p.total, "mesh") if p.cores else (p.total / p.ranks, "port")
        rate = f"({digits(max(link, f.block))}, 1, {digits(alpha)})"
        yield f"define bandwidth = {{{kind} => [((0..{ranks - 1}) -> {rate})]}}"


def _comments(p: Profile) -> Iterator[str]:
    """Yields paragraphs: the machine, the samples, each number, and the parts not measured."""
    f = p.costs
    cores = f"{p.cores} cores" if p.cores else "one GPU"
    yield f"{FIRST_LINE.removeprefix('# ')} {__version__} on {p.date}: {p.name}, {cores}."
    yield f"{platform.system()} {platform.release()}; kernels built by {p.tools}."
    yield (
        f"{p.launches:,} launches of {p.kinds} kinds, {DTYPE} sums over {p.ranks} ranks, in "
        f"{p.rounds} rounds and {p.seconds:g} s. Of each kind the lower decile counts; "
        f"the median is {p.spread:.0%} more."
    )
    yield (
        f"α {digits(f.alpha)} µs: what one more primitive takes in launches of {16 * p.ranks} "
        f"bytes a rank, over a link or (step) not, which all numbers here together explain within "
        f"{p.error_small:.0%}."
    )
    none = ", here none" if f.reduce >= FASTEST else ""
    yield (
        f"block, reduce: what large copies and reductions take besides, explained within "
        f"{p.error_large:.0%}; reduce is what one source more adds to its copy{none}."
    )
    if f.cache:
        yield (
            "cache: GB/s of one core and of all by what a launch touches of memory, in all ranks' "
            "buffers together; read: the part of a copy that its read takes. Links have no limit "
            "of their own: they are given what all cores copy at best."
        )
    else:
        yield (
            f"links: all ranks at once copy {digits(p.total)} GB/s, of which the port of each has "
            "its part, but no less than one thread block."
        )
    cores = f", on all cores {digits(f.wake)} µs" if p.cores > 1 else ""
    yield (
        f"A launch itself takes {digits(f.launch)} µs, {digits(f.entry)} µs for each thread "
        f"block{cores}: base, entry and wake of `launch` (`hccc sim --launch 0` leaves them out)."
    )
    if p.cores > 1:
        yield f"Launches of up to {_size(SMALL_LAUNCH)} in all (small) run on one core."
    yield (
        "Links to other machines (NICs, switches) cannot be measured on one: none are here "
        "(`hccc profile --hosts a:2,b:2` measures several)."
    )


def _launch(p: Profile) -> str:
    f = p.costs
    small = f", small => {_size(SMALL_LAUNCH)}" if p.cores > 1 else ""
    times = f"base => {digits(f.launch)}, entry => {digits(f.entry)}, wake => {digits(f.wake)}"
    return f"{{{times}{small}}}"


def _rates(x: Cached) -> str:
    return f"({digits(x.block)}, {digits(x.all)})" if x.all else digits(x.block)


def _size(size: int) -> str:
    """Writes a size in bytes as `512 KiB` or `2 MiB`."""
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB"


def digits(value: float) -> str:
    """Writes a number with three significant digits, never in powers of ten."""
    return np.format_float_positional(value, 3, fractional=False, trim="-")


def summary(p: Profile) -> str:
    f = p.costs
    rows = {
        "α": f"{digits(f.alpha)} µs a primitive and micro-batch",
        "block": f"{digits(f.block)} GB/s; all ranks at once {digits(p.total)} GB/s",
        **_cached(f),
        "reduce": "nothing besides its copy"
        if f.reduce >= FASTEST
        else f"{digits(f.reduce)} GB/s a source more",
        "launch": f"{digits(f.launch)} µs, {digits(f.entry)} µs a thread block"
        + (f", {digits(f.wake)} µs for all {p.cores} cores" if p.cores > 1 else ""),
        "samples": f"{p.launches:,} in {p.rounds} rounds; the median is {p.spread:.0%} slower",
        "explained": f"small launches within {p.error_small:.0%}, large {p.error_large:.0%}",
    }
    return "\n".join(f"  {key:<9} {value}" for key, value in rows.items())


def _cached(f: UnitCosts) -> dict[str, str]:
    """Returns the summary's row of the rates in caches, if there are any."""
    if not f.cache:
        return {}
    return {"caches": ", ".join(f"{_size(x.size)} {digits(x.block)} GB/s" for x in f.cache)}


def place(output: Path, device: str, devices: Sequence[str]) -> Path:
    """Returns the output file, with the device in its name (FILE-cpu) if there are several
    devices."""
    return output.with_stem(f"{output.stem}-{device}") if len(devices) > 1 else output


def check_free(paths: Sequence[Path]) -> None:
    """Raises UserError E430 for files that `hccc profile` did not write, E431 where none can be
    written."""
    for path in paths:
        if os.path.lexists(path) and not _ours(path):
            message = f"{path} is there already, and no file of `hccc profile`"
            raise fail("E430", message, help="give -o another name, or remove it")
        check_place(path)


def write(files: Mapping[Path, str]) -> None:
    """Writes all files whole, or none. Raises UserError E431."""
    with named_errors(Path(", ".join(map(str, files)))):
        replace_all({path: partial(_put, body) for path, body in files.items()})


def _put(body: str, file: TextIO) -> None:
    file.write(body)


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(FIRST_LINE)) == FIRST_LINE.encode()
    except OSError:
        return False
