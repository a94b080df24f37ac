"""loop_cache: compiled loops on disk, where a damaged or outdated file is only one that is missing.

numba keeps what it compiles, but believes what it finds: a file cut short by a full disk is an
error somewhere in its reader, one with other bytes in its machine code ends the process. It also
asks of a loop's own file alone whether it has changed, not of the loops that were compiled into it,
and two processes that fill the cache at once may give one name to two loops. Here each file has a
digest of its content, of what it was compiled from, and of its key: types of the arguments,
processor and its features, byte code. What does not fit is compiled and written again. The digest
is against accidents; whoever can write the files can run what he likes anyway.

Processes that start at once, as ranks and test workers do, compile a loop once: the first does,
the others wait for its file, as long as it lives and at most `LONGEST` seconds.

Where numba keeps files is left to it: NUMBA_CACHE_DIR, `__pycache__`, or the user's cache. Where
none of them can be written, loops are compiled in every process, which is told once.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import io
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import environment
from numba.core.caching import FunctionCache, NullCache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.types import BaseNamedTuple, BaseTuple

from hccc.base.jit.compiled import names
from hccc.base.progress import begin_once, end_once

_PACKAGE = __name__.partition(".")[0]
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))
ONCE = "Compiling loops"
LONGEST = 30.0  # s, to wait for another process that compiles a loop


def keep(loop: Any) -> None:
    """Makes `loop`, which numba made, load what it compiles from disk, and save it there."""
    if not hasattr(loop, "_cache"):  # NUMBA_DISABLE_JIT
        return
    try:
        loop._cache = _LoopCache(loop)
    except (RuntimeError, OSError) as error:  # numba: "no locator available"
        reason = error.strerror if isinstance(error, OSError) else None
        loop._cache = _NoCache(reason or "neither hccc's directory nor your home can be written")


class _LoopCache(FunctionCache):
    """numba's cache of one loop, on files of its own."""

    def __init__(self, loop: Dispatcher) -> None:
        super().__init__(loop.py_func)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _Files(Path(self._cache_path), self._impl.filename_base, loop)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Returns the compilation kept for `sig`; None makes numba compile the loop.

        numba's own makes its tables of all that a loop may call first, which take 0.3 s, and which
        only compiling needs: the compiler makes them itself.
        """
        rtsys.initialize(target_context)
        found = None
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            begin_once(ONCE)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves what was compiled for `sig`, if that can be."""
        end_once(ONCE)
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            _tell(error.strerror or str(error))


class _NoCache(NullCache):
    """For a loop that has no place for files."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Says that nothing is kept."""
        _tell(self._reason)


@cache
def _tell(reason: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):
            print(
                f"note: compiled loops cannot be kept ({reason}), and are compiled at every start; "
                "set NUMBA_CACHE_DIR to a directory that can be written",
                file=sys.stderr,
            )


class _Files:
    """The files of one loop: one for each set of argument types and processor.

    A file is a SHA-256 digest (32 bytes) of the loop's stamp, the fields of named tuples that it
    is given, and the rest, which is pickled: the key, and what numba makes of a compilation.
    """

    def __init__(self, place: Path, base: str, loop: Dispatcher) -> None:
        self._place, self._base, self._loop = place, base, loop
        self._locks: dict[Path, int] = {}

    def load(self, key: Any) -> Any:
        """Returns the compilation saved under `key`, or that another process is about to save; None
        makes numba compile the loop."""
        found = self._saved(key)
        if found is None and self._claimed(key):
            found = self._saved(key)
            if found is not None:
                self._release(key)
        return found

    def _claimed(self, key: Any) -> bool:
        """Marks the loop as being compiled here; waits while another process says so of itself.

        Loops lock those that they call, which call no loop above them: nobody waits in a circle.
        """
        path = self._path(key).with_suffix(".lock")
        if path in self._locks:
            return False
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._locks[path] = opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            until = time.monotonic() + LONGEST
            while time.monotonic() < until:
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.02)
        return path in self._locks

    def _release(self, key: Any) -> None:
        """Lets other processes look for the file. Whoever holds the removed lock finds it too."""
        path = self._path(key).with_suffix(".lock")
        if path in self._locks:
            path.unlink(missing_ok=True)
            os.close(self._locks.pop(path))

    def _saved(self, key: Any) -> Any:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        digest, body = data[:32], data[32:]
        if digest != self._digest(key, body):
            return None
        found, content = _Unpickler(io.BytesIO(body)).load()
        return content if found == key else None

    def save(self, key: Any, content: Any) -> None:
        """Keeps `content` under `key`, whole or not at all. Raises OSError."""
        body: bytes = dumps((key, content))  # type: ignore[no-untyped-call]
        path = self._path(key)
        new = path.with_name(f"{path.name}.{token_hex(8)}.tmp")
        try:
            new.write_bytes(self._digest(key, body) + body)
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
            self._release(key)

    def flush(self) -> None:
        """Forgets everything, as numba's does."""
        for path in self._place.glob(f"{self._base}.*.loop"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        """Names a file by types and processor, not by byte code: a changed loop replaces the old
        one."""
        name = hashlib.sha256(repr(key[:2]).encode()).hexdigest()[:16]
        return self._place / f"{self._base}.{name}.loop"

    def _digest(self, key: Any, body: bytes) -> bytes:
        fields = repr(sorted(_tuple_fields(key[0]))).encode()
        return hashlib.sha256(stamp(self._loop) + fields + body).digest()


class _Unpickler(pickle.Unpickler):
    """Reads a compilation without importing the modules of numba whose functions it calls, which
    takes up to 0.3 s: their code is in it, and looks up no names there."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns what a pickle names, but for numba's function that imports them."""
        return _environment if name == "_rebuild_env" else super().find_class(module, name)


def _environment(module: str, constants: list[Any], name: str) -> Any:
    """Makes the environment that numba's `_rebuild_env` makes, of a module that may be missing."""
    if module in sys.modules or not module.startswith("numba."):
        return environment._rebuild_env(module, constants, name)  # type: ignore[no-untyped-call]
    made = environment.lookup_environment(name)  # type: ignore[no-untyped-call]
    if made is None:
        kind: Any = environment.Environment
        made = kind({"__name__": module})
        made.consts[:] = constants
        made.env_name = name
        kind._memo[name] = made
    return made


def _tuple_fields(types: Iterable[Any]) -> Iterator[tuple[str, ...]]:
    """Yields the class and fields of each named tuple among the types of arguments: compiled code
    knows fields by position, and equal types may come from classes with other fields."""
    for each in types:
        given: Any = each  # numba's stubs know neither fields nor iteration
        if isinstance(each, BaseNamedTuple):
            yield (str(given.instance_class), *given.fields)
        if isinstance(each, BaseTuple):
            yield from _tuple_fields(given)


def stamp(loop: Dispatcher) -> bytes:
    """Digests all that `loop` is compiled from and its key does not say."""
    parts = sorted(set(_origins(loop, set())))
    words = (numba.__version__, np.__version__, sys.version, *parts)
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).digest()


def _origins(loop: Dispatcher, seen: set[int]) -> Iterator[str]:
    """Yields files, options and constants of `loop` and of the loops that it calls, in any file."""
    seen.add(id(loop))
    function: Any = loop.py_func
    options = sorted(f"{key}={value!r}" for key, value in loop.targetoptions.items())
    yield f"{function.__qualname__} of {_content(inspect.getfile(function))}: {', '.join(options)}"
    used = sorted(set(names(function.__code__)))
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    known = function.__globals__ | dict(zip(function.__code__.co_freevars, cells, strict=True))
    for name in used:
        value = known.get(name)
        if isinstance(value, Dispatcher):
            if id(value) not in seen:
                yield from _origins(value, seen)
        elif isinstance(value, np.ndarray):
            yield f"{name}: {value.dtype.str} {value.shape} {value.tobytes().hex()}"
        elif isinstance(value, _CONSTANTS):
            yield f"{name}: {value!r}"
        else:  # a module, or a class such as an enumeration
            place = value if isinstance(value, ModuleType) else inspect.getmodule(value)
            if place is not None and place.__name__.partition(".")[0] == _PACKAGE:
                yield f"{name} of {_content(str(place.__file__))}"


@cache
def _content(file: str) -> str:
    """Digests a source file; returns its path where it cannot be read (in an archive)."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return file
