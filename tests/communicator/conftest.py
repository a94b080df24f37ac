"""Libraries of kernels for few ranks, emitted and built once."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.ir.plan import Plan
from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import COMMUNICATOR
from tests.communicator import cuda
from tests.emit import plans
from tests.runtime.handwritten import INCLUDE

Library = Callable[[Plan], Path]
Uneven = Callable[[str], Path]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Returns a function that builds a plan's library for float32 and int32, once a plan."""
    made: dict[str, Path] = {}

    def directory(plan: Plan) -> Path:
        how = f"{plan.transport.name}_{plan.protocol}"
        key = f"{plan.name}_{plan.n_ranks}_{plan.collective.root}_{how}"
        if key not in made:
            made[key] = plans.written(plan, tmp_path_factory.mktemp("libraries") / key)
            built(made[key], ["float32", "int32"], ["sum", "max"])
        return made[key]

    return directory


@pytest.fixture(scope="session")
def uneven(library: Library) -> Uneven:
    """Returns a function that builds the library of an uneven collective of three ranks, whose root
    is rank 1."""
    from tests.communicator.test_calls import plan_of  # which imports this file

    def directory(name: str) -> Path:
        plan = plan_of(name, 3, 1)
        c = replace(plan.collective, uneven=True)
        return library(replace(plan, name=f"{plan.name}v", collective=c))

    return directory


@pytest.fixture(scope="session")
def sums(library: Library) -> Path:
    """Builds an AllReduce of three ranks."""
    return library(plans.compiled(plans.mesh_allreduce(3)))


@pytest.fixture(scope="session")
def runtime() -> Path:
    """Builds a CUDA runtime that works on the CPU."""
    return cuda.working_runtime()


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiles what the runtime library computes of places in memory and of arguments."""
    library = tmp_path_factory.mktemp("places") / "places.so"
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-w"]
    folders = [COMMUNICATOR.source.parent, INCLUDE, *COMMUNICATOR.include]
    include = [f"-I{folder}" for folder in folders]
    source = Path(__file__).parent / "places.cpp"
    subprocess.run(["g++", *flags, *include, str(source), "-o", str(library), "-ldl"], check=True)
    found = ctypes.CDLL(str(library))
    found.moved_as.restype = ctypes.c_char_p
    found.pieces.restype, found.pieces.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    found.pieces_take.restype = ctypes.c_long
    found.pieces_give.restype = ctypes.c_size_t
    return found
