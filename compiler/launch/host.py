"""host: the program that a remote shell starts on a host: builds the kernels and starts the ranks,
or starts a command for each rank.

`python -P -m hccc.launch.host` has no arguments: it reads everything from its standard input. Its
first message states its version of hccc. Kernels are kept in `$XDG_CACHE_HOME/hccc/kernels`
(`~/.cache`), by the digest of their sources. When its input ends, it ends with all its ranks.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hccc.base.diagnostics import UserError, fail
from hccc.base.version import __version__
from hccc.emit.kept import kept
from hccc.launch.messages import PROTOCOL, Channel, Message, fields_of, serve
from hccc.launch.rank_commands import Processes, command_of, root_here
from hccc.launch.workers import Workers, WorkerTask
from hccc.runtime.communicator.kernels import built

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/){0,4}[A-Za-z0-9_][A-Za-z0-9_.-]*")


def main() -> None:
    """Starts the ranks of this host and passes messages between them and the launching process."""
    with serve() as (channel, next_message):
        channel.send({"version": __version__, "protocol": PROTOCOL})
        workers: Workers | None = None
        processes: Processes | None = None
        while (message := next_message())["word"] != "end":
            match message["word"]:
                case "job":
                    workers = _started(message, channel)
                case "root":
                    _answer(channel, 0, {"root": root_here(message["host"])})
                case "command":
                    processes = _run(message, channel)
                case "signal" if processes:
                    processes.signal(message["number"])
                case "tell" if workers:
                    workers.send(message["to"], message["message"])
                case _:
                    pass
        if workers:
            workers.end(orderly=True)


def _answer(channel: Channel, worker: int, answer: Message) -> None:
    with suppress(OSError):  # the launching process has gone: the input ends, too
        channel.send({"from": worker, "message": answer})


def _run(message: Message, channel: Channel) -> Processes | None:
    """Starts a command's processes. None: there are none, and the reason has been sent."""
    ranks = range(*message["ranks"])
    try:
        return Processes(
            command_of(message["command"]),
            ranks,
            lambda rank, answer: _answer(channel, rank - ranks.start, answer),
            piped=True,
        )
    except UserError as error:
        for k in range(len(ranks)):
            _answer(channel, k, {"error": fields_of(error)})
        return None


def _started(message: Message, channel: Channel) -> Workers | None:
    """Starts the ranks' processes. None: there are none, and the reason has been sent."""

    def on_message(worker: int, answer: Message) -> None:
        _answer(channel, worker, answer)

    os.environ.update(message["environment"])
    job, groups = message["job"], message["groups"]
    try:
        library = None
        if "sources" in message:
            library = built(unpack(message["sources"]), message["dtypes"], message["ops"])
        return Workers(WorkerTask(**job), groups, library, on_message)
    except UserError as error:
        for worker in range(len(groups)):
            on_message(worker, {"error": fields_of(error)})
        return None


def unpack(packed: str) -> Path:
    """Writes the kernel sources that were sent into this user's cache; returns their folder. Raises
    UserError E431, E474 a name that no source has."""
    sources: Mapping[str, str] = json.loads(zlib.decompress(base64.b64decode(packed)))
    for name in sources:
        if not _NAME.fullmatch(name):
            raise fail("E474", f"{name!r} is no name of a source")
    return kept(sources)


if __name__ == "__main__":
    main()
