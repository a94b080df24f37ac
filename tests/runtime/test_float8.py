"""The 8-bit floats of types.h, bit for bit: against ml_dtypes, and against CUDA's saturation."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.runtime.build import Variant, build_library
from hccc.runtime.layout import DTYPES

INCLUDE = Path(__file__).parents[2] / "runtime" / "include"
SHAPE = ("RANKS", "SUB", "CHANNELS", "BLOCKS", "FLAGS", "SCRATCH", "STAGE", "QUEUES", "SLOTS")
FLOAT8 = ("float8e4m3", "float8e5m2")
SOURCE = """\
#include "hccc/layout.h"
#include "hccc/port.h"
#include "hccc/types.h"
extern "C" void down(const float* from, hccc_T* to, long n) {
  for (long i = 0; i < n; ++i) to[i] = hccc_dtype::down(from[i]);
}
extern "C" void up(const hccc_T* from, float* to, long n) {
  for (long i = 0; i < n; ++i) to[i] = hccc_dtype::up(from[i]);
}
"""


def call(library: Path, name: str, given: NDArray[Any], dtype: Any) -> NDArray[Any]:
    result = np.empty(len(given), dtype)
    pointers = (given.ctypes.data_as(ctypes.c_void_p), result.ctypes.data_as(ctypes.c_void_p))
    getattr(ctypes.CDLL(str(library)), name)(*pointers, ctypes.c_long(len(given)))
    return result


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = tmp_path_factory.mktemp("float8") / "float8.cpp"
    source.write_text("".join(f"#define HCCC_{n} 1\n" for n in SHAPE) + SOURCE)
    return {d: build_library(source, Variant(d), include=[INCLUDE]) for d in FLOAT8}


def saturated(x: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    """Rounds as ml_dtypes does, but to the largest value at most; a NaN becomes 0x7f."""
    largest = np.float32(ml_dtypes.finfo(DTYPES[dtype]).max)  # type: ignore[no-untyped-call]
    bits = np.clip(x, -largest, largest).astype(DTYPES[dtype]).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), bits)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_value_becomes_its_float(libraries: dict[str, Path], dtype: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    found = call(libraries[dtype], "up", every, np.float32)
    wanted = every.view(DTYPES[dtype]).astype(np.float32)
    numbers = ~np.isnan(wanted)
    assert (np.isnan(found) == ~numbers).all() and numbers.sum() in (254, 250)
    assert (found[numbers].view(np.uint32) == wanted[numbers].view(np.uint32)).all()


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_float_is_rounded_as_it_should(libraries: dict[str, Path], dtype: str) -> None:
    """Floats of all exponents, every value, every midpoint and their neighbours."""
    rng = np.random.default_rng(8)
    anything = rng.integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32)
    near = np.ldexp(rng.uniform(-2, 2, 1 << 20), rng.integers(-22, 18, 1 << 20))
    values = np.arange(256, dtype=np.uint8).view(DTYPES[dtype]).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    exact = np.concatenate([finite, middle, [np.inf, -np.inf, np.nan, 464, 480, 61440, 65504]])
    with np.errstate(all="ignore"):
        sides = [np.nextafter(exact, s, dtype=np.float32) for s in (-np.inf, np.inf)]
    with np.errstate(all="ignore"):
        x = np.concatenate([anything, near, exact, *sides]).astype(np.float32)
        wanted = saturated(x, dtype)
    assert (call(libraries[dtype], "down", x, np.uint8) == wanted).all()
