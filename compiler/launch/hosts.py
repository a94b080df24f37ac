"""hosts: the hosts that ranks run on, from `--hosts`: `a:4,b:4`, or a file in mpirun's format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hccc.base.diagnostics import UserError, fail
from hccc.base.files.reading import read_text

_MOST_BYTES = 1 << 20  # of a file of hosts
# No host begins with `-`, which remote shells would take for an option.
_HOST = re.compile(
    r"((?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?"
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]))(?::([0-9]{1,6}))?"
)
_WORD = re.compile(r"([a-z_-]+)=([0-9]{1,6})")
_HELP = "write a:4,b:4, or name a file with a line `host slots=4` for each host"


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its ranks. login: its name for the remote shell, `user@name` or `name`."""

    login: str
    ranks: range

    @property
    def name(self) -> str:
        """Without the user."""
        return self.login.rpartition("@")[2]


Slots = tuple[str, int | None]  # a host, and how many ranks it takes; None: it does not say


def hosts_of(text: str, n_ranks: int | None = None) -> list[Host]:
    """Returns the hosts of so many ranks, in order; None: of as many as there are slots.

    Each host takes as many ranks as it has slots (1 if it gives none), the last ones fewer or none;
    if no host gives slots, all take equally many.

    Raises:
        UserError: E474 a word that names no host, too few slots; E40x a file that cannot be read.
    """
    hosts = list(_of_file(Path(text)) if _is_file(text) else _of_list(text))
    if not hosts:
        raise fail("E474", f"--hosts {text}: names no host", help=_HELP)
    if n_ranks is None:
        n_ranks = sum(slots or 1 for _, slots in hosts)
    return list(_filled(hosts, n_ranks))


def _is_file(text: str) -> bool:
    try:
        return "/" in text or Path(text).is_file()
    except (OSError, ValueError):
        return False


def _of_list(text: str) -> Iterator[Slots]:
    for word in filter(None, map(str.strip, text.split(","))):
        yield _host(word, f"--hosts: {word!r}")


def _of_file(path: Path) -> Iterator[Slots]:
    for number, line in enumerate(read_text(path, _MOST_BYTES).splitlines(), 1):
        words = re.sub(r"\s*=\s*", "=", line.partition("#")[0]).split()
        if not words:
            continue
        where = f"{path}:{number}: {words[0]!r}"
        login, slots = _host(words[0], where)
        for word in words[1:]:
            match = _WORD.fullmatch(word)
            if not match:
                raise fail("E474", f"{path}:{number}: {word!r} is no word such as slots=4")
            if match[1] == "slots":  # others are for mpirun
                slots = _count(match[2], where)
        yield login, slots


def _host(word: str, where: str) -> Slots:
    match = _HOST.fullmatch(word)
    if not match:
        raise fail("E474", f"{where} is no host", help=_HELP)
    login = match[1].replace("[", "").replace("]", "")
    return login, None if match[2] is None else _count(match[2], where)


def _count(digits: str, where: str) -> int:
    if not int(digits):
        raise fail("E474", f"{where} has no slots", help="leave it out")
    return int(digits)


def _filled(hosts: Sequence[Slots], n_ranks: int) -> Iterator[Host]:
    """Yields the hosts that get ranks. Raises UserError E474 if there are too few slots."""
    if all(slots is None for _, slots in hosts):
        if n_ranks % len(hosts):
            raise _uneven(n_ranks, len(hosts))
        hosts = [(login, n_ranks // len(hosts)) for login, _ in hosts]
    first = 0
    for login, slots in hosts:
        end = min(n_ranks, first + (slots or 1))
        if first < end:
            yield Host(login, range(first, end))
        first = end
    if first < n_ranks:
        message = f"--hosts: {n_ranks} ranks, and slots for {first} of them"
        raise fail("E474", message, help="a:4 takes four ranks")


def _uneven(n_ranks: int, n_hosts: int) -> UserError:
    message = f"--hosts: {n_ranks} ranks cannot be shared out evenly among {n_hosts} hosts"
    return fail("E474", message, help="say how many each takes, as in a:4,b:3")
