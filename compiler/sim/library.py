"""library: the engine in C++ as a shared library, built at first use, a second of the compiler.

Nothing here needs NumPy, so a command can begin to build before it imports what it needs itself.
"""

from __future__ import annotations

import ctypes
import threading
from contextvars import copy_context
from functools import cache
from pathlib import Path

from hccc.base.building.build import build_alone
from hccc.base.diagnostics import UserError, fail

SOURCE = Path(__file__).parent / "engine.cpp"
# No fused multiply-add: times must be the same on every machine.
FLAGS = ("-O2", "-ffp-contract=off", "-fno-fast-math")
_BUILDING = threading.Lock()


def begin_building() -> None:
    """Builds the library in the background, for a command that will simulate in a while."""
    threading.Thread(
        target=copy_context().run, args=(library,), name="engine.cpp", daemon=True
    ).start()


def library() -> ctypes.CDLL | UserError:
    """Returns the library, or the reason why there is none; one thread builds it, others wait."""
    with _BUILDING:
        return _built()


@cache
def _built() -> ctypes.CDLL | UserError:
    try:
        found = ctypes.CDLL(str(build_alone(SOURCE, FLAGS)))
    except UserError as error:
        return error
    except OSError as error:  # for example a file system mounted noexec
        return fail("E414", f"the simulator cannot be built or loaded: {error}")
    found.hccc_sim_begin.argtypes = [ctypes.c_void_p]
    found.hccc_sim_begin.restype = ctypes.c_int64
    pointer, number, count = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64
    found.hccc_sim_go_on.argtypes = [pointer, pointer, number, number, count]
    found.hccc_sim_go_on.restype = None
    return found
