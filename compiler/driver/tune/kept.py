"""kept: results of simulated calls in this user's cache, so that tuning the same again is quick.

Tuning simulates the same calls of the same structures in the same order, whoever asks: `hccc`, then
`show` and `sim` of the same program. What a call took is kept under all that it depends on: the
structure, the cluster, the call, and hccc's own sources. It only tells which setting is chosen;
proofs never rest on it. A file that is not whole is one that is missing.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from hccc.base.building.places import user_directory
from hccc.base.diagnostics import UserError
from hccc.base.files.writing import write_whole
from hccc.base.version import __version__
from hccc.ir.digest import cluster_digest, digest
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology

FOLDER = "tuned"
MOST_FILES = 512  # of a structure each, some KiB
MOST_CALLS = 1 << 12  # of a file: with more it begins anew
KEPT_S = 30 * 86_400.0  # since it was last read
WORTH_S = 0.02  # s that a structure's calls took to simulate, at least
SOURCES = ("ir", "network", "passes", "sim", "driver/tune")  # what decides what calls take


class Took(NamedTuple):
    """The result of a simulated call. time: µs; quiet: µs from its launch to its last event;
    launch: µs; use: the largest share of its capacity that any link carried; rates: how many rates
    it took to simulate."""

    time: float
    quiet: float
    launch: float
    use: float
    rates: int


class KeptCalls:
    """What calls of one structure on one cluster took, by what they are; None: they were given
    up."""

    def __init__(self, plan: Plan, topology: Topology) -> None:
        state = blake2b(digest(plan) + cluster_digest(topology) + _sources(), digest_size=16)
        self._name = f"{state.hexdigest()}.json"
        self.known = _read(self._name)
        self.took_s = 0.0  # to simulate what was not known

    def save(self) -> None:
        """Writes what is known, if it was worth the time."""
        if self.took_s < WORTH_S:
            return
        body = json.dumps(self.known)
        with suppress(UserError, OSError):  # a cache that cannot be written is none
            place = user_directory(FOLDER)
            write_whole(place / self._name, lambda file: file.write(f"{_check(body)}\n{body}\n"))
            _forget_old(place)


def _read(name: str) -> dict[str, Took | None]:
    try:
        path = user_directory(FOLDER) / name
        check, body = path.read_text("utf-8").splitlines()
        if check != _check(body):
            return {}
        os.utime(path)
        known = json.loads(body)
        if len(known) > MOST_CALLS:
            return {}
        return {call: took and Took(*took) for call, took in known.items()}
    except (UserError, OSError, ValueError, TypeError, AttributeError):
        return {}


def _check(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()


def _forget_old(place: Path) -> None:
    """Removes files that were not read for long, and the oldest of too many."""
    ages = list[tuple[float, Path]]()
    for path in place.iterdir():
        with suppress(OSError):
            ages.append((time.time() - path.stat().st_mtime, path))
    for i, (age, path) in enumerate(sorted(ages)):
        if age > KEPT_S or i >= MOST_FILES:
            with suppress(OSError):
                path.unlink()


@cache
def _sources() -> bytes:
    """Hashes what hccc does with a call: results of another version are not its own."""
    package, state = Path(__file__).parents[2], blake2b(__version__.encode(), digest_size=16)
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*")):
            if path.suffix in (".py", ".cpp"):
                state.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return state.digest()


def named(channels: int, words: tuple[object, ...], work: int, limit: float) -> str:
    """Returns the name of a call: `words` say it, `work` and `limit` when it is given up."""
    return " ".join(map(repr, (channels, *words, work, None if math.isinf(limit) else limit)))
