"""kernels: libraries of one's own, which process groups run instead of the standard ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hccc.base.diagnostics import fail
from hccc.base.files.plain import is_plain
from hccc.base.files.reading import read_text_in
from hccc.base.limits import PLAN_BYTES
from hccc.ir import catalogue_json
from hccc.ir.collective import Collective, spelled
from hccc.ir.names import PLAN_FILE
from hccc.runtime.communicator.buffers import REDUCTIONS, TYPES
from hccc.runtime.communicator.kernels import built, has_kernels
from hccc.runtime.torch import jobs

VARIABLE = "HCCC_LIBRARIES"


@dataclass(frozen=True, slots=True)
class Added:
    """A directory of kernels. group: the name of the only group that has it; None: all have."""

    place: Path
    group: str | None


_ADDED: list[Added] = []


def add(place: Path, group: str | None) -> None:
    """Adds a directory that `hccc` emitted, or all such directories in one. Raises UserError E473
    where there is none."""
    _ADDED.extend(_found(place, group))


def _found(place: Path, group: str | None) -> Sequence[Added]:
    inside = sorted(place.iterdir()) if place.is_dir() else []
    found = [one for one in (place, *inside) if is_plain(one, PLAN_FILE)]
    if not found:
        message = f"{place}: is no directory of kernels, and has none in it"
        help = "`hccc algo.rccl -o DIR` emits one; a job is its table, or of `hccc.load_job(FILE)`"
        raise fail("E473", message, help=help)
    return [Added(one, group) for one in found]


@cache
def _add_environment() -> None:
    """Adds directories and jobs' tables of HCCC_LIBRARIES, between colons: behind those of calls,
    which go first."""
    places = [Path(one) for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one]
    tables = [jobs.of_table(one) for one in places if one.is_file()]
    _ADDED[:0] = [one for place in places if not place.is_file() for one in _found(place, None)]
    jobs.add_behind(tables)


@cache
def _collective_of(place: Path) -> Collective:
    text = read_text_in(place, PLAN_FILE, PLAN_BYTES)
    return catalogue_json.loads(text, str(place / PLAN_FILE)).plans[0].collective


def additions() -> int:
    """Returns how many directories and jobs were added."""
    return len(_ADDED) + jobs.additions()


class Finder:
    """What one communicator of a group runs: libraries, each found once for a type and a reduction,
    and `jobs`. Raises UserError where HCCC_LIBRARIES names what is none of both."""

    def __init__(self, group: str, n_ranks: int, platform: str = "cpu") -> None:
        _add_environment()
        self._group, self._n_ranks, self._platform = group, n_ranks, platform
        self._found: set[Path] = set()
        self.jobs = jobs.GroupJobs(group, n_ranks)

    def of(self, n_ranks: int) -> Finder:
        """Makes the finder of a group that is split from this one."""
        return Finder(self._group, n_ranks)

    def on(self, platform: str) -> Finder:
        """Makes the finder of the same group for memory of a GPU's platform: of directories that
        have kernels for it."""
        return Finder(self._group, self._n_ranks, platform)

    def job(self, collective: str, root: int) -> jobs.AddedJob | None:
        """Returns the job of a call, the last one added that fits. root: -1 for none."""
        return self.jobs.fitting(collective.replace("_", ""), root)

    def __call__(self, collective: str, root: int, type_: int, op: int) -> list[str]:
        """Builds the libraries that fit a call, and lists those that were not listed before, in
        the order in which they were added. root, op: -1 for none. Raises UserError E41x."""
        files = []
        for one in _ADDED:
            if one.group in (None, self._group) and self._fits(one.place, collective, root):
                reduction = REDUCTIONS[op] if op >= 0 else "sum"
                file = built(one.place, [TYPES[type_]], [reduction], self._platform).resolve()
                if file not in self._found:
                    self._found.add(file)
                    files.append(str(file))
        return files

    def _fits(self, place: Path, collective: str, root: int) -> bool:
        found = _collective_of(place)
        return (
            (found.op, found.uneven) == spelled(collective.replace("_", ""))
            and found.n_ranks == self._n_ranks
            and (root < 0 or found.root == root)
            and (self._platform == "cpu" or has_kernels(place, self._platform))
        )
