"""drawer: processes that draw pictures, started before there is anything to draw.

One imports matplotlib while the program is compiled, and divides into two, which draw while the
page's times are simulated. Where they cannot be started, or end, pictures are drawn here.

Each has a pipe of requests and one of answers, which are pickled, one after the other: (name of the
picture, arguments), and a SvgPicture, the UserError that was raised, or None after a bug.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

from hccc.base.diagnostics import UserError
from hccc.pictures.svg_picture import SvgPicture

if TYPE_CHECKING:
    from hccc.pictures.canvas import Picture

PROCESSES = 2
_begun: list[Drawer] = []  # at most one, until somebody takes it


def draw(name: str, *what: object) -> Picture:
    """Draws a picture by the function that has its name, and its module."""
    module = import_module(f"hccc.pictures.{name}")
    picture: Picture = getattr(module, name)(*what)
    return picture


def begin() -> None:
    """Starts the processes for a command that will draw a page in a while, where there is a core
    for them."""
    if (os.cpu_count() or 1) > 1 and not _begun:
        with suppress(OSError):
            _begun.append(Drawer())


def begun() -> Drawer | None:
    """Returns the processes, which are the caller's to close; None if none were started."""
    return _begun.pop() if _begun else None


class Drawer:
    """The processes that draw, as the command that has started them sees them."""

    def __init__(self) -> None:
        code = "import sys; sys.path[:] = {}; import hccc.pictures.drawer as d; d.main({})"
        pipes = [(*os.pipe(), *os.pipe()) for _ in range(PROCESSES)]
        theirs = [(asked, answered) for asked, _, _, answered in pipes]
        self._free: SimpleQueue[tuple[IO[bytes], IO[bytes]]] = SimpleQueue()
        for _, ask, answers, _ in pipes:
            self._free.put((os.fdopen(ask, "wb"), os.fdopen(answers, "rb")))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code.format(repr(sys.path), theirs)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # where answers are nothing else is written
                pass_fds=[file for pair in theirs for file in pair],
                process_group=0,  # Ctrl-C is the command's to tell
            )
        finally:
            for file in (file for pair in theirs for file in pair):
                os.close(file)
        self._asking = ThreadPoolExecutor(PROCESSES)
        atexit.register(self._kill)

    def ask(self, name: str, *what: object) -> Callable[[], SvgPicture]:
        """Has a picture drawn, and returns the function that waits for it."""
        asked: Future[SvgPicture | UserError | None]
        asked = self._asking.submit(self._exchange, (name, what))

        def drawn() -> SvgPicture:
            found = asked.result()
            if isinstance(found, UserError):
                raise found
            return draw(name, *what) if found is None else found

        return drawn

    def _exchange(self, request: tuple[str, tuple[object, ...]]) -> SvgPicture | UserError | None:
        """Returns the answer to a request; None if the process has ended, or failed."""
        requests, answers = pipes = self._free.get()
        try:
            with suppress(OSError, EOFError, pickle.PickleError):
                requests.write(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
                requests.flush()
                answer = pickle.load(answers)  # what our own process wrote
                return answer if isinstance(answer, SvgPicture | UserError) else None
            return None
        finally:
            self._free.put(pipes)

    def close(self) -> None:
        """Ends the processes."""
        self._asking.shutdown(cancel_futures=True)
        self._kill()
        self._process.wait()
        while not self._free.empty():
            for pipe in self._free.get():
                with suppress(OSError):  # a request that nobody has read
                    pipe.close()
        atexit.unregister(self._kill)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def main(pipes: list[tuple[int, int]]) -> None:
    """Draws until the pipes of requests end, in a process for each pair of pipes. pipes: the files
    of requests and of answers."""
    for name in ("timeline", "topology", "pipeline", "dag", "bandwidth"):
        import_module(f"hccc.pictures.{name}")
    mine = 0
    for k in range(1, len(pipes)):
        if os.fork() == 0:
            mine = k
            break
    for k, others in enumerate(pipes):
        if k != mine:
            os.close(others[0])
            os.close(others[1])
    requests, answers = pipes[mine]
    with os.fdopen(requests, "rb") as asked, os.fdopen(answers, "wb") as out, suppress(EOFError):
        while True:
            name, what = pickle.load(asked)
            out.write(pickle.dumps(_drawn(name, what), pickle.HIGHEST_PROTOCOL))
            out.flush()


def _drawn(name: str, what: tuple[object, ...]) -> SvgPicture | UserError | None:
    """Returns a picture without what only matplotlib understands; None after a bug, which the
    caller meets again."""
    try:
        found = draw(name, *what)
    except UserError as error:
        return error
    except Exception:
        return None
    return SvgPicture(found.name, found.title, found.says, found.svg)
