"""Every loop gives the same in plain Python and compiled, to the bit and the width of integers.

Work is done in plain Python, and what each loop is called with is kept, be it by other code or by
another loop. Then both forms of each loop are called with copies of that.
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hccc
from hccc.base.jit import compiled
from hccc.base.jit.compiled import Loop
from tests.base.jit import work

pytestmark = pytest.mark.slow  # the work takes half a minute, compiling all loops two
KEPT = 2  # calls that are kept of a loop, of each kind of arguments
Calls = dict[str, dict[Any, list[Any]]]
Loops = dict[str, Loop[..., Any]]


def loops() -> Loops:
    """Returns all loops of the package that have two forms, by name."""
    found: Loops = {}
    for module in pkgutil.walk_packages(hccc.__path__, "hccc.", onerror=lambda name: None):
        if not module.name.startswith(
            ("hccc.runtime", "hccc.downstream", "hccc.torch", "hccc.__main__")
        ):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Loop) and not value.always:
                    found[f"{value.function.__module__}.{value.function.__qualname__}"] = value
    return found


def calls(loops: Loops) -> Calls:
    """Returns the arguments of calls of each loop, while all runs in plain Python and no integer
    overflows."""
    kept: Calls = {name: {} for name in loops}
    plain = {name: loop.plain for name, loop in loops.items()}
    noting = {id(plain[name]): _noting(plain[name], kept[name]) for name in loops}
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="raise"):
        patch.setattr(compiled, "form", "plain")
        for name, function in plain.items():
            patch.setitem(loops[name].forms, "plain", noting[id(function)])
            for called, value in list(function.__globals__.items()):
                if id(value) in noting:
                    patch.setitem(function.__globals__, called, noting[id(value)])
        for some in work.ALL.values():
            some()
    return kept


def _noting(function: Any, kept: dict[Any, list[Any]]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        some = kept.setdefault(_kind(args), [])
        if len(some) < KEPT:
            some.append(_copied(args))
        return function(*args)

    return call


def _copied(value: Any) -> Any:
    """Copies arguments. What cannot be written stays so: it is a type of its own, for which numba
    would compile the loop once more than its users have it."""
    if isinstance(value, tuple):
        parts = [_copied(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    made = copy.deepcopy(value)
    if isinstance(made, np.ndarray):
        made.flags.writeable = value.flags.writeable
    return made


def _kind(value: Any) -> Any:
    """Returns types and dimensions of arguments, and whether arrays are empty."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim, value.size > 0
    return tuple(map(_kind, value)) if isinstance(value, tuple) else type(value)


def _alike(a: Any, b: Any) -> bool:
    """Tells whether values are of one type, and the same to the bit."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    x, y = np.asarray(a), np.asarray(b)
    same = x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    return same and isinstance(a, np.ndarray) == isinstance(b, np.ndarray)


def compare(loop: Loop[..., Any], kept: dict[Any, list[Any]]) -> None:
    """Calls both forms with all that is kept."""
    for given in (args for some in kept.values() for args in some):
        one, other = _copied(given), _copied(given)
        with np.errstate(over="raise"):
            expected = compiled._whole(loop.plain(*one))
        found = loop.compiled(*other)
        assert _alike(expected, found), (given, expected, found)
        assert _alike(one, other), (given, one, other)


def test_forms_give_the_same(subtests: pytest.Subtests) -> None:
    """All loops in one process, which does the work. A loop that no work reaches is compared by
    nothing."""
    found = loops()
    assert len(found) > 100
    kept = calls(found)
    assert [name for name, some in kept.items() if not some] == []
    for name, loop in found.items():
        with subtests.test(name):
            compare(loop, kept[name])
