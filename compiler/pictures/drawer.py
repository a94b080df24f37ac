"""drawer: a process that draws pictures, started before there is anything to draw.

It imports matplotlib while the program is compiled, and draws while the page's times are simulated.
Where it cannot be started, or ends, pictures are drawn here.

Requests and answers are pickled, one after the other, on its stdin and stdout: (name of the
picture, arguments), and a SvgPicture, the UserError that was raised, or None after a bug.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING

from hccc.base.diagnostics import UserError
from hccc.pictures.svg_picture import SvgPicture

if TYPE_CHECKING:
    from hccc.pictures.canvas import Picture

_begun: list[Drawer] = []  # at most one, until somebody takes it


def draw(name: str, *what: object) -> Picture:
    """Draws a picture by the function that has its name, and its module."""
    module = import_module(f"hccc.pictures.{name}")
    picture: Picture = getattr(module, name)(*what)
    return picture


def begin() -> None:
    """Starts the process for a command that will draw a page in a while, where there is a core for
    it."""
    if (os.cpu_count() or 1) > 1 and not _begun:
        with suppress(OSError):
            _begun.append(Drawer())


def begun() -> Drawer | None:
    """Returns the process, which is the caller's to close; None if none was started."""
    return _begun.pop() if _begun else None


class Drawer:
    """The process that draws, as the command that has started it sees it."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; import hccc.pictures.drawer as d; d.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is the command's to tell
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        self._asking = ThreadPoolExecutor(1)
        atexit.register(self._process.kill)

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
        with suppress(OSError, EOFError, pickle.PickleError):
            self._requests.write(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
            self._requests.flush()
            answer = pickle.load(self._answers)  # what our own process wrote
            return answer if isinstance(answer, SvgPicture | UserError) else None
        return None

    def close(self) -> None:
        """Ends the process."""
        self._asking.shutdown(cancel_futures=True)
        self._process.kill()
        self._process.communicate()
        atexit.unregister(self._process.kill)


def main() -> None:
    """Draws until stdin ends."""
    for name in ("timeline", "topology", "pipeline", "dag", "bandwidth"):
        import_module(f"hccc.pictures.{name}")
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing else may be written where answers are
        with suppress(EOFError):
            while True:
                name, what = pickle.load(sys.stdin.buffer)
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
