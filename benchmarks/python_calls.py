"""What a call costs in Python: from an array to the function of the C interface.

    python -m benchmarks.python_calls [--calls 20000] [--json]

Times `Communicator.all_reduce` of NumPy arrays and, where it is installed, of PyTorch's tensors,
with a function of the C library (memcmp, of one element) where the runtime's would be called, and
that function called with addresses that are known. The difference is what Python adds to a call.
Best of five rounds, one after the other.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.runtime_library import library

ROUNDS = 5


@dataclass(frozen=True)
class CallRow:
    """The time of one form of a call, in µs, and what it has over the bare function."""

    form: str
    microseconds: float
    added: float


def stand_in() -> Any:
    """Returns a function that takes the arguments of hcccAllReduce, does nothing, and returns 0."""
    found = ctypes.CDLL(None).memcmp
    like = library().function("AllReduce")
    found.restype, found.argtypes = like.restype, like.argtypes
    return found


def forms(comm: Communicator, bare: Any) -> dict[str, Callable[[], object]]:
    """Returns the calls to time, by name; the first is the bare function."""
    x, y = np.zeros(1, np.float32), np.zeros(1, np.float32)
    words = (x.ctypes.data, x.ctypes.data, 1, 7, 0, comm.handle, None)
    made: dict[str, Callable[[], object]] = {
        "the C function, addresses known": lambda: bare(*words),
        "NumPy, in place": lambda: comm.all_reduce(x),
        "NumPy, out of place": lambda: comm.all_reduce(x, y),
    }
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        t, u, g = torch.zeros(1), torch.zeros(1), torch.zeros(1, requires_grad=True)
        made["PyTorch, in place"] = lambda: comm.all_reduce(t)
        made["PyTorch, out of place"] = lambda: comm.all_reduce(t, u)
        made["PyTorch, in place, with a gradient"] = lambda: comm.all_reduce(g)
    return made


def microseconds(body: Callable[[], object], calls: int) -> float:
    """Returns the time of one call, the least of a few rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        best = min(best, time.perf_counter() - begin)
    return best / calls * 1e6


def rows(calls: int) -> list[CallRow]:
    """Times all forms."""
    bare = stand_in()
    (comm,) = Communicator.init_all(1)
    with comm, mock.patch.object(library(), "function", lambda name: bare):
        times = {form: microseconds(body, calls) for form, body in forms(comm, bare).items()}
    least = next(iter(times.values()))
    return [CallRow(form, time_, time_ - least) for form, time_ in times.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = rows(options.calls)
    if options.json:
        print(json.dumps([asdict(row) for row in found], indent=2))
        return
    table = Table("call", "µs", "over the C function", title="A call in Python")
    for row in found:
        table.add_row(row.form, f"{row.microseconds:.2f}", f"{row.added:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
