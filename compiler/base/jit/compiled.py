"""compiled: loops that run as plain Python while there is little to do, else compiled by numba.

numba takes 0.4 s to import and 0.3 s to compile a loop, once; from disk a compiled loop takes some
10 ms. So a call runs as plain Python as long as the time that its loop has spent in this way, and
what this call will add, is less than the compiled loop costs to get. Both forms give the same
results. HCCC_LOOPS=plain or HCCC_LOOPS=compiled in the environment makes all loops run in one form.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, update_wrapper
from hashlib import sha1
from pathlib import Path
from time import thread_time
from types import CellType, CodeType, FunctionType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
# Seconds of one core:
IMPORT = 0.4  # to import numba
COMPILE = 0.3  # to compile a loop
LOAD = 0.015  # to read a compiled loop from disk, with those that it calls
ELEMENT = 1e-6  # for an element of the arrays in plain Python, until a call has been timed
QUICK = 1e-7  # for an element at least, whatever a call took that had little to do
LARGEST = 1 << 20  # elements of arrays: with more, a loop is compiled at once
_SCALARS = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32)
_making = threading.RLock()
form = os.environ.get("HCCC_LOOPS", "")  # "plain", "compiled", or anything else: as it pays


def expect(seconds: float) -> None:
    """Notes that loops will take at least `seconds` in plain Python: loops on disk are loaded as
    soon as that is more than numba takes to import, not only once so much was spent."""
    Loop.spent_by_all += seconds


def prange(stop: int, /) -> range:
    """Counts to `stop`; in several threads where the loop is compiled, and parallel."""
    return range(stop)


@overload
def njit(loop: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def njit(
    *,
    parallel: bool = False,
    inline: Literal["never", "always"] = "never",
    allocates: bool = True,
    always: bool = False,
    work: Callable[..., float] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def njit(
    loop: Callable[P, R] | None = None,
    /,
    *,
    parallel: bool = False,
    inline: Literal["never", "always"] = "never",
    allocates: bool = True,
    always: bool = False,
    work: Callable[..., float] | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes `loop` run as plain Python or compiled: `@njit`, or with options.

    parallel: `prange` runs in several threads; inline: "always" puts the loop into its callers;
    allocates: whether the loop makes arrays; always: it runs compiled only; work: of the arguments,
    how many elements a call goes through at most, where their arrays do not tell.
    """

    def tiered(loop: Callable[P, R]) -> Callable[P, R]:
        options = {"parallel": parallel, "inline": inline, "allocates": allocates}
        return Loop(loop, options, always, work)

    return tiered if loop is None else tiered(loop)


class Loop(Generic[P, R]):
    """A function in two forms, `plain` and `compiled`.

    A form calls other loops in the same form. So only calls from outside of loops decide.
    """

    spent_by_all = 0.0  # s, in plain Python

    def __init__(
        self,
        function: Callable[P, R],
        options: dict[str, Any],
        always: bool,
        work: Callable[..., float] | None,
    ) -> None:
        update_wrapper(self, function)
        self.function: Any = function
        self._options, self.always, self._work = options, always, work
        self._switched = always
        self._spent, self._rate = 0.0, ELEMENT
        self._looks_at = 0.0  # s spent, from when on a file is looked for again
        self.forms: dict[str, Any] = {}

    def __call__(self, *given: P.args, **named: P.kwargs) -> R:
        """Runs the form that pays. Numbers are given, and returned, as Python's."""
        args = [a.item() if isinstance(a, _SCALARS) else a for a in given]
        work = 0.0
        if not (self._switched or form):
            work = self._work(*args) if self._work else _elements(args)
            large = work > LARGEST and not self._work
            self._switched = large or self._pays(self._spent + work * self._rate)
        if (self._switched and form != "plain") or self.always or form == "compiled":
            return self.compiled(*args, **named)  # type: ignore[no-any-return]
        begun = thread_time()
        try:
            return _whole(self.plain(*args, **named))  # type: ignore[no-any-return]
        finally:
            self._count(thread_time() - begun, work)

    def __reduce__(self) -> str:
        return str(self.function.__qualname__)

    @property
    def plain(self) -> Any:
        """The loop in plain Python; the compiled loop, where it runs compiled only."""
        return self.forms.get("plain") or self._make("plain")

    @property
    def compiled(self) -> Any:
        """The loop as numba's dispatcher."""
        return self.forms.get("compiled") or self._make("compiled")

    def _make(self, form: str) -> Any:
        """Makes one form of the loop, and of those that it calls: known to others once complete."""
        with _making:
            new = {loop: loop._begun(form) for loop in self._reached if form not in loop.forms}
            for loop, (function, _) in new.items():

                def inner(value: Any) -> Any:
                    if isinstance(value, Loop):
                        return new[value][1] if value in new else value.forms[form]
                    if value is prange and form == "compiled":
                        from hccc.base.jit.dispatchers import parallel_range

                        return parallel_range
                    return value

                if function is not None:
                    _fill(function, loop.function, inner)
            for loop, (_, made) in new.items():
                loop.forms[form] = made
            return self.forms[form]

    def _begun(self, form: str) -> tuple[Any, Any]:
        """Makes a form; returns the function whose globals it still lacks, if any, and the form."""
        if form == "plain" and self.always:
            return None, self.compiled
        function = _copy(self.function)
        if form == "plain":
            return function, function
        from hccc.base.jit.dispatchers import dispatcher

        return function, dispatcher(function, **self._options)

    def _pays(self, spent: float) -> bool:
        """Tells whether compiling the loop, or loading it compiled, takes less than `spent`
        seconds."""
        if spent < LOAD:
            return False
        if "numba" not in sys.modules and Loop.spent_by_all + spent - self._spent < IMPORT:
            return False
        if spent >= COMPILE * len(self._reached):
            return True
        if self._spent < self._looks_at:
            return False
        self._looks_at = self._spent + LOAD  # looking takes up to a millisecond
        return self._kept()

    def _count(self, seconds: float, work: float) -> None:
        self._spent += seconds
        Loop.spent_by_all += seconds
        if work > 0:
            self._rate = max(QUICK, seconds / work)

    @cached_property
    def _reached(self) -> list[Loop[Any, Any]]:
        """The loops that are compiled with this one: itself, and those that it calls."""
        found: list[Loop[Any, Any]] = [self]
        for each in found:
            values = _used(each.function).values()
            found += [v for v in values if isinstance(v, Loop) and v not in found]
        return found

    def _kept(self) -> bool:
        """Tells whether the compiled loop seems to be on disk. Does not import numba."""
        code: CodeType = self.function.__code__
        file = Path(code.co_filename)
        name = f"{file.stem}.{code.co_qualname}-{code.co_firstlineno}."
        sources = {each.function.__code__.co_filename for each in self._reached}
        try:
            changed = max(os.stat(source).st_mtime for source in sources)
            with os.scandir(loop_directory(file)) as found:
                kept = [each for each in found if each.name.startswith(name)]
            return any(
                each.name.endswith(".loop") and each.stat().st_mtime > changed for each in kept
            )
        except OSError:
            return False


def loop_directory(file: Path) -> Path:
    """Returns the directory in which numba keeps what it compiles of a source file."""
    place = os.environ.get("NUMBA_CACHE_DIR")
    if not place and os.access(file.parent, os.W_OK):
        return file.parent / "__pycache__"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = sha1(str(file.parent).encode(), usedforsecurity=False).hexdigest()
    return Path(place or home / "numba", f"{file.parent.name}_{digest}")


def _elements(args: Iterable[Any]) -> int:
    """Counts the elements of the arrays among `args`, also of those in tuples."""
    count = 0
    for each in args:
        if isinstance(each, np.ndarray):
            count += each.size
        elif isinstance(each, tuple):
            count += _elements(each)
    return count


def _whole(result: Any) -> Any:
    """Turns the result of a plain loop into that of a compiled one: NumPy's numbers into
    Python's."""
    if isinstance(result, np.generic):
        return result.item()
    if type(result) is tuple:
        return tuple([_whole(each) for each in result])
    return result


def _copy(function: Any) -> Any:
    """Copies `function` without its globals."""
    scope = {"__builtins__": __builtins__, "__name__": function.__module__}
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, cells or None
    )
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def _fill(made: Any, function: Any, inner: Callable[[Any], Any]) -> None:
    """Gives `made` the globals and cells of `function`, each as `inner` says."""
    used = _used(function)
    for name, cell in zip(function.__code__.co_freevars, made.__closure__ or (), strict=True):
        cell.cell_contents = inner(used.pop(name))
    made.__globals__.update({name: inner(value) for name, value in used.items()})


def _used(function: Any) -> dict[str, Any]:
    """Returns the globals and cells that `function` uses, by name."""
    known = function.__globals__
    used = {name: known[name] for name in names(function.__code__) if name in known}
    free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return used | {name: cell.cell_contents for name, cell in free}


def names(code: CodeType) -> Iterator[str]:
    """Yields the names that a function and the functions inside it use."""
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names(constant)
