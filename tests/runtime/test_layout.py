"""layout.py and abi.py say what layout.h and hccc.h say."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess

import pytest
from handwritten import INCLUDE, MESH, PROGRAMS, RING, STAGED

from hccc.runtime.abi import Call, FaultRecord, Params, Rank
from hccc.runtime.build import Variant, build_library
from hccc.runtime.layout import Shape


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """layout.h compiled as plain C, every warning an error."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("layout") / "layout.so"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]
    source = str(PROGRAMS / "layout.c")
    subprocess.run(
        [compiler, *strict, f"-I{INCLUDE}", source, "-o", str(library)], check=True, timeout=60
    )
    return ctypes.CDLL(str(library))


def numbers(header: ctypes.CDLL, shape: Shape, count: int, size: int, micro: int) -> list[int]:
    """What C computes for one launch."""
    fields = (shape.ranks, shape.sub, shape.lanes, shape.blocks, shape.flags)
    rest = (shape.scratch, shape.stage, shape.queues, shape.slots, shape.grain)
    out = (ctypes.c_longlong * 10)()
    header.sizes(
        (ctypes.c_int * 10)(*fields, *rest),
        ctypes.c_longlong(count),
        ctypes.c_int(size),
        ctypes.c_longlong(micro),
        out,
    )
    return list(out)


@pytest.mark.parametrize(
    "shape", [RING, MESH, STAGED, Shape(7, 3, 5, 2, 11, 4, 6, 9, 4, 99_999)], ids=str
)
def test_sizes_agree(header: ctypes.CDLL, shape: Shape) -> None:
    for count, size, micro in itertools.product(
        (0, 1, 7, 1000, 100003, 1 << 22, (1 << 28) + 1, 10**11),
        (1, 2, 4, 8),
        (0, 1, 100, 4096, 1 << 40),
    ):
        cut = shape.sizes(count, size, micro)
        assert numbers(header, shape, count, size, micro) == [
            cut.part,
            cut.micro,
            cut.batches,
            shape.scratch_bytes(count, size, micro),
            shape.flag_bytes,
            shape.ready_at,
            shape.done_at,
            shape.go_at,
            shape.finished_at,
            shape.state_at,
        ]


def test_structures_agree(header: ctypes.CDLL) -> None:
    out = (ctypes.c_int * 4)()
    header.structure_sizes(out)
    assert list(out) == [ctypes.sizeof(s) for s in (Rank, Call, FaultRecord, Params)]


@pytest.mark.parametrize("name, shape", [("ring", RING), ("mesh", MESH), ("staged", STAGED)])
def test_shapes_of_programs(name: str, shape: Shape) -> None:
    library = build_library(PROGRAMS / f"{name}_cpu.cpp", Variant("float32"), include=[INCLUDE])
    out = (ctypes.c_int * 10)()
    ctypes.CDLL(str(library)).shape_of_program(out)
    assert Shape(*out) == shape
