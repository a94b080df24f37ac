"""Every reduction of every type, on values of any bits, by the bodies of all three targets.

The texts of types.h and of a target's body are compiled for the host, once for each pair of a type
and a reduction, in a namespace of its own; NumPy computes the wanted bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hccc.base.dtypes import ALL, BY_NAME, OPS, accumulated, is_own, named, reduces
from hccc.base.reductions.evaluate import evaluate
from hccc.base.reductions.parse import own
from hccc.emit.kernels import own_reductions
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.layout import DTYPES
from tests.marks import slow
from tests.runtime import gpu_text
from tests.runtime.handwritten import INCLUDE
from tests.runtime.test_cpu import stored

Values = Any  # an array, some of them of complex numbers
RANKS = 5
SHAPE = ("SUB", "CHANNELS", "BLOCKS", "FLAGS", "SCRATCH", "STAGE", "QUEUES", "SENDS", "SLOTS")
NEW = ("int16", "uint16", "bool", "complex64", "complex128")
# The texts of the GPUs differ in how float16 is converted and floats are multiplied: of other types
# one of each kind.
OF_HIP = ("float16", "bfloat16", "float32", "float64", "int32", "uint8", "bool", "complex64")
OF_A_PAIR = """
template <int K>
static void run(hccc_T* const* at, unsigned n, const unsigned long long* scales) {
  hccc_pointers<K, 1> pointers;
  for (int i = 0; i < K + 1; ++i) pointers.set(i, at[i]);
  if constexpr (hccc_op::multiplies)
    for (int k = 0; k < K; ++k)
      pointers.set_scale(k, hccc_dtype::up(hccc_of_bits<hccc_T>(scales[k])));
  pointers.offset = 0;
  hccc_reduce_copy<HCCC_REDUCE | HCCC_FINAL>(pointers, n);
}
"""
OF_A_NUMBER = """
extern "C" void NAME_SOURCES(void* const* at, unsigned n, const unsigned long long* scales) {
  run<SOURCES>(reinterpret_cast<hccc_T* const*>(at), n, scales);
}
"""


def sources(op: str) -> tuple[int, ...]:
    """Returns numbers of sources: as few as one has a primitive that divides or multiplies."""
    return (1, 2, 7) if op in ("avg", "premul_sum") else (2, 7)


OWN = (
    "absmax: abs(a) > abs(b) ? a : abs(b) > abs(a) ? b : max(a, b)",
    "odds: a + b + a * b - 3 * 0",
    "parallel: a * b / (a + b) + 0.5 - 5e-1",
    "fewer: min(a, b) == a && !(a > b) || -a < b ? a - b : b",
    "bits: (a | b) ^ ~(a & b)",
    "ordered: a <= b && a != b || a >= 100 ? b : a",
)  # laws do not matter here


def body(
    target: str, pairs: Sequence[tuple[str, str]], place: Path, accumulate: int = 32
) -> ctypes.CDLL:
    """Builds a target's body for each of the pairs: functions DTYPE_OP_K of K sources.

    accumulate: bits of the type that sums are kept in.
    """
    if target == "cpu":
        (place / "hccc").symlink_to(INCLUDE / "hccc")
    else:
        gpu_text.headers(target, place)
    texts = [
        (place / "hccc" / name).read_text().replace("#pragma once", "").replace("#include", "//")
        for name in ("types.h", "cpu_body.h" if target == "cpu" else "gpu_body.h")
    ]
    own = [op for op in dict.fromkeys(op for _, op in pairs) if is_own(op)]
    pairs = [(dtype, named(op)) for dtype, op in pairs]
    lines = [f"#define HCCC_{name} 1" for name in SHAPE]
    lines += [f"#define HCCC_ACCUMULATE {accumulate}"] * (accumulate != 32)
    lines += [f"#define {name} {text}" for name, text in own_reductions.constants(own)]
    lines += [f"#define HCCC_RANKS {RANKS}", '#include "hccc/layout.h"', '#include "hccc/port.h"']
    for dtype, op in pairs:
        lines += ["#undef HCCC_DTYPE", "#undef HCCC_OP", f"#define HCCC_DTYPE {dtype}"]
        lines += [f"#define HCCC_OP {op}", f"namespace {dtype}_{op}_pair {{", *texts]
        lines.append(OF_A_PAIR)
        for k in sources(op):
            lines.append(OF_A_NUMBER.replace("NAME", f"{dtype}_{op}").replace("SOURCES", str(k)))
        lines.append("}")
    (place / "body.cpp").write_text("\n".join(lines))
    options = ("-march=native", "-ffp-contract=off")  # as libraries for the CPU are built
    return ctypes.CDLL(str(gpu_text.compiled(target, place, *options, "-Ihccc", "body.cpp")))


def scalars(dtype: str) -> Values:
    """Returns what premul_sum multiplies each of up to seven sources by."""
    return np.array([3, 0.3, 1, 77, 1.7, 2, 5]).astype(DTYPES[dtype])


def drawn(rng: np.random.Generator, dtype: str, count: int) -> Values:
    """Draws values of any bits: NaNs and infinities, bools of any byte; of floats every third is a
    zero, of either sign."""
    size = BY_NAME[dtype].bytes
    bits = rng.integers(0, 256, (count, size), np.uint8)
    if BY_NAME[dtype].kind == "f":
        bits[::3] = 0
        bits[::3, -1] = rng.choice([0, 128], len(bits[::3]))
    return bits.reshape(-1).view(DTYPES[dtype])


def product(a: Values, b: Values) -> Values:
    """Multiplies, complex numbers part by part."""
    if a.dtype.kind != "c":
        return np.asarray(a * b)
    real = a.real * b.real - a.imag * b.imag
    imaginary = a.real * b.imag + a.imag * b.real
    return np.stack([real, imaginary], axis=1).view(a.dtype)[:, 0]


def combined(op: str, a: Values, b: Values) -> Values:
    """Combines two values as one step of a reduction."""
    if is_own(op):
        return evaluate(own(op).expression, a, b)
    match op:
        case "sum" | "avg" | "premul_sum":
            return np.asarray(a + b)
        case "prod":
            return product(a, b)
        case "min":  # the left of equals, and the right one of NaNs
            return np.where((b < a) | (b != b), b, a)
        case "max":
            return np.where((a < b) | (b != b), b, a)
        case "land" | "lor":
            one = np.logical_and(a, b) if op == "land" else np.logical_or(a, b)
            return one.astype(a.dtype)
        case _:
            bits = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
            return np.asarray(bits[op](a, b))


def divided(total: Values) -> Values:
    """Divides by the ranks: integers as C does, complex numbers part by part."""
    if total.dtype.kind in "iu":
        quotients = [(abs(x) // RANKS) * (1 if x >= 0 else -1) for x in total.tolist()]
        return np.array(quotients).astype(total.dtype)
    parts = total.view(total.real.dtype)
    return np.asarray((parts / parts.dtype.type(RANKS)).view(total.dtype))


def reduced(values: Sequence[Values], dtype: str, op: str, accumulate: int = 32) -> Values:
    """Reduces from left to right in the type that sums are kept in, and rounds once; for 0 after
    each step."""
    wide = DTYPES[accumulated(dtype, accumulate or 32)]
    rounds = not accumulate and wide != DTYPES[dtype]
    given = [v.view(np.uint8) != 0 if dtype == "bool" else v.astype(wide) for v in values]
    if op == "premul_sum":
        given = [v * by for v, by in zip(given, scalars(dtype).astype(wide), strict=False)]
        given = [stored(v, DTYPES[dtype]).astype(wide) if rounds else v for v in given]
    total = given[0]
    for value in given[1:]:
        total = combined(op, total, value)
        total = stored(total, DTYPES[dtype]).astype(wide) if rounds else total
    total = divided(total) if op == "avg" else total
    if wide == np.float64 and BY_NAME[dtype].bytes < 4:
        return nearest(total, DTYPES[dtype])
    return stored(total, DTYPES[dtype]) if wide != DTYPES[dtype] else total


def nearest(x: Values, dtype: np.dtype[Any]) -> Values:
    """Rounds float64 to a shorter float: what is below its last bit, to nearest even. Not all casts
    of ml_dtypes round once."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    finite = np.isfinite(x)
    known = np.where(finite, x, 0)
    last = np.maximum(np.frexp(known)[1] - info.nmant - 1, info.minexp - info.nmant)
    whole = np.ldexp(np.rint(np.ldexp(known, -last)), last)
    return stored(np.where(finite, whole, x), dtype)


def same(got: Values, want: Values) -> bool:
    """Compares bits, but for those of NaNs of float32 and float64, which are the processor's."""
    if got.dtype.kind in "fc" and got.dtype.itemsize >= 4:
        a, b = got.view(got.real.dtype), want.view(want.real.dtype)
        bits = f"u{a.dtype.itemsize}"
        equal = (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))
        return bool(np.all(equal))
    return bool(got.tobytes() == want.tobytes())


FLOATS = tuple(dtype.name for dtype in ALL if dtype.kind in "fc")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "dtypes"),
    [
        ("cpu", (*NEW, "float32")),
        *(slow(target, tuple(DTYPES)) for target in ("cpu", "cuda")),
        slow("hip", OF_HIP),
    ],
)
def test_every_reduction_of_every_type(
    target: str, dtypes: tuple[str, ...], tmp_path: Path
) -> None:
    """At an aligned and another address, and with what is left over by 16 bytes."""
    pairs = [(dtype, op) for dtype in dtypes for op in OPS if reduces(dtype, op)]
    compare(body(target, pairs, tmp_path), pairs, 32)


@pytest.mark.parametrize(
    ("target", "dtypes"),
    [
        ("cpu", ("bfloat16",)),
        *(slow(target, tuple(DTYPES)) for target in ("cpu", "cuda")),
        slow("hip", OF_HIP),
    ],
)
def test_reductions_of_ones_own(target: str, dtypes: tuple[str, ...], tmp_path: Path) -> None:
    """With what is left over by 16 bytes, too."""
    pairs = [(dtype, op) for dtype in dtypes for op in OWN if reduces(dtype, op)]
    compare(body(target, pairs, tmp_path), pairs, 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "accumulate", "dtypes"),
    [
        ("cpu", 64, ("float16", "bfloat16", "complex64")),
        *(slow(target, bits, FLOATS) for target in ("cpu", "cuda") for bits in (0, 64)),
        *(slow("hip", bits, ("float16", "bfloat16", "complex64")) for bits in (0, 64)),
    ],
)
def test_sums_in_every_type(
    target: str, accumulate: int, dtypes: tuple[str, ...], tmp_path: Path
) -> None:
    """The same bits on each target, as the type says."""
    pairs = [(dtype, op) for dtype in dtypes for op in (*OPS, *OWN) if reduces(dtype, op)]
    compare(body(target, pairs, tmp_path, accumulate), pairs, accumulate)


def compare(library: ctypes.CDLL, pairs: Sequence[tuple[str, str]], accumulate: int) -> None:
    """Compares the body of each pair with NumPy."""
    rng = np.random.default_rng(28)
    for dtype, op in pairs:
        size = BY_NAME[dtype].bytes
        for k, n, shift in ((1, 99, 0), (2, 4003, 0), (7, 1001, 0), (7, 1001, 1), (2, 3, 1)):
            if k not in sources(op):
                continue
            values = [drawn(rng, dtype, n) for _ in range(k)]
            memory = [aligned_zeros((n + 1) * size).view(DTYPES[dtype]) for _ in range(k + 1)]
            places = [one[shift : shift + n] for one in memory]
            for one, value in zip(places, values, strict=False):
                one.view(np.uint8)[:] = value.view(np.uint8)
            addresses = (ctypes.c_void_p * (k + 1))(*[one.ctypes.data for one in places])
            bits = [int.from_bytes(one.tobytes()[:8], "little") for one in scalars(dtype)]
            scales = (ctypes.c_ulonglong * len(bits))(*bits)
            library[f"{dtype}_{named(op)}_{k}"](addresses, ctypes.c_uint(n), scales)
            with np.errstate(all="ignore"):
                want = reduced(values, dtype, op, accumulate)
            assert same(places[k], want), (dtype, op, k, n, shift)
