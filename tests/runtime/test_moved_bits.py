"""Data that moves keeps its bits, and what is reduced has the same bits on every target."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.targets import CUDA, HIP, Target
from hccc.runtime.abi import CallRecord
from hccc.runtime.cpu import aligned_zeros
from hccc.runtime.layout import DTYPES
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.request import LaunchRequest
from hccc.testing import kernels
from tests.emit import launch, plans
from tests.marks import slow
from tests.runtime import gpu_text
from tests.runtime.handwritten import INCLUDE

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPE = ("SUB", "CHANNELS", "BLOCKS", "FLAGS", "SCRATCH", "STAGE", "QUEUES", "SENDS", "SLOTS")
MOST = 8  # sources or destinations
BODY = """
#include "hccc/layout.h"
#include "hccc/port.h"
#include "hccc/types.h"
#include HCCC_BODY
template <int mode, int K, int D>
static void run(hccc_T* const* at, unsigned n) {
  hccc_pointers<K, D> pointers;
  for (int i = 0; i < K + D; ++i) pointers.set(i, at[i]);
  pointers.offset = 0;
  hccc_reduce_copy<mode>(pointers, n);
}
extern "C" void copy_1(hccc_T* const* at, unsigned n) { run<HCCC_COPY, 1, 1>(at, n); }
extern "C" void copy_2(hccc_T* const* at, unsigned n) { run<HCCC_COPY, 1, 2>(at, n); }
extern "C" void copy_8(hccc_T* const* at, unsigned n) { run<HCCC_COPY, 1, 8>(at, n); }
extern "C" void sum_2(hccc_T* const* at, unsigned n) { run<HCCC_REDUCE, 2, 1>(at, n); }
extern "C" void sum_to_3(hccc_T* const* at, unsigned n) { run<HCCC_REDUCE, 3, 3>(at, n); }
extern "C" void sum_8(hccc_T* const* at, unsigned n) { run<HCCC_REDUCE, 8, 1>(at, n); }
extern "C" void round_all(const hccc_value* from, hccc_T* to, long n) {
  for (long i = 0; i < n; ++i) to[i] = hccc_dtype::down(from[i]);
}
"""
Bits = NDArray[np.uint8]


def body(target: str, dtype: str, place: Path) -> ctypes.CDLL:
    """Builds the bodies above for a type, with the headers of a target."""
    if target == "cpu":
        (place / "hccc").symlink_to(INCLUDE / "hccc")
    else:
        gpu_text.headers(target, place)
    lines = [f"#define HCCC_{name} 1" for name in SHAPE]
    lines += ["#define HCCC_RANKS 8", f"#define HCCC_DTYPE {dtype}"]
    (place / "body.cpp").write_text("\n".join(lines) + BODY)
    return ctypes.CDLL(str(gpu_text.compiled(target, place, "-Ihccc", "body.cpp")))


def run(library: ctypes.CDLL, name: str, buffers: Sequence[NDArray[Any]], n: int) -> None:
    """Calls a body with its sources and destinations."""
    addresses = (ctypes.c_void_p * len(buffers))(*[one.ctypes.data for one in buffers])
    library[name](addresses, ctypes.c_uint(n))


def any_bits(rng: np.random.Generator, dtype: Any, count: int) -> NDArray[Any]:
    """Draws elements of any bits; every third is a NaN, half of those signalling."""
    size = np.dtype(dtype).itemsize
    bits = rng.integers(0, 256, (count, size), np.uint8).view(f"u{size}")[:, 0]
    inf = np.array([np.inf]).astype(dtype).view(f"u{size}")[0] if size > 1 else 0x7C
    bits[::3] |= inf
    return bits.view(dtype)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        *(("cuda", d) for d in ("float8e5m2", "bfloat16", "float16", "float32", "float64")),
        ("hip", "float16"),
        ("cpu", "float16"),
    ],
)
def test_bodies_that_copy_keep_all_bits(target: str, dtype: str, tmp_path: Path) -> None:
    """At every alignment of source and destination, and with what is left over by 16 bytes."""
    library, rng, kind = body(target, dtype, tmp_path), np.random.default_rng(3), DTYPES[dtype]
    for n in (*range(20), 62, 1001):
        for source, place in ((0, 0), (1, 1), (1, 0), (0, 3)):
            for d in (1, 2, 8):
                memory = [any_bits(rng, kind, n + 8) for _ in range(1 + d)]
                at = [aligned_zeros((n + 8) * kind.itemsize).view(kind) for _ in memory]
                for one, bits in zip(at, memory, strict=True):
                    one[:] = bits
                shifts = [source, *(place + (i % 2) for i in range(d))]
                run(library, f"copy_{d}", [a[s:] for a, s in zip(at, shifts, strict=True)], n)
                for i, shift in enumerate(shifts):
                    wanted = memory[i].copy()
                    wanted[shift : shift + n] = memory[0][source : source + n]
                    assert at[i].tobytes() == wanted.tobytes(), (n, shifts, i)


@pytest.mark.parametrize("target", ["cuda", slow("hip")])
@pytest.mark.parametrize("dtype", ["float16", *map(slow, ("int8", "float32", "float64"))])
def test_sums_at_any_places(dtype: str, target: str, tmp_path: Path) -> None:
    """Each of three destinations is the place of a source, or another; neither need be alike
    modulo 16. Nothing around them is written."""
    library, rng, kind = body(target, dtype, tmp_path), np.random.default_rng(4), DTYPES[dtype]
    for n in (0, 1, 17, 62, 1001):
        for shifts in ((0, 0, 0), (3, 3, 3), (1, 0, 0), (0, 1, 5), (2, 6, 1)):
            memory = [rng.integers(0, 9, n + 8).astype(kind) for _ in range(6)]
            for in_place in (True, False):
                at = [aligned_zeros((n + 8) * kind.itemsize).view(kind) for _ in memory]
                for one, values in zip(at, memory, strict=True):
                    one[:] = values
                parts = [a[s : s + n] for a, s in zip(at, shifts * 2, strict=True)]
                wanted = np.sum(parts[:3], axis=0)
                results, before = (at[:3], memory[:3]) if in_place else (at[3:], memory[3:])
                run(library, "sum_to_3", parts[:3] + (parts[:3] if in_place else parts[3:]), n)
                for one, was, shift in zip(results, before, shifts, strict=True):
                    expected = was.copy()
                    expected[shift : shift + n] = wanted
                    assert one.tobytes() == expected.tobytes(), (n, shifts, in_place)


COPIES = (
    "direct_alltoall",
    *map(
        slow,
        (
            "direct_allgather",
            "direct_gather",
            "direct_scatter",
            "binomial_broadcast",
            "sendrecv",
            "ring_allgather",
        ),
    ),
)


@pytest.mark.parametrize("target", [CUDA, HIP], ids=lambda t: t.name)
@pytest.mark.parametrize("name", COPIES)
def test_collectives_that_copy_keep_all_bits(name: str, target: Target, tmp_path: Path) -> None:
    """16-bit words, which are the floats that a GPU would convert."""
    path = EXAMPLES / f"{name}.rccl"
    plan = driver.compile_text(Source(path.name, path.read_text()), Options()).plan
    world = launch.PlanRanks(
        gpu_text.built(plan, target, "float16", "sum", tmp_path), plan, target.name
    )
    for seed, count in enumerate((1, 7, 62, 1003)):
        for offset in (0, 1):
            for in_place in (False, True) if plan.in_place else (False,):
                p = Pattern(plan.collective, "float16", "sum", count, seed)
                assert world.wrong(p, in_place=in_place, offset=offset, micro_batch_bytes=64) == 0


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_words_of_other_sizes(dtype: str, tmp_path: Path) -> None:
    plan = plans.compiled(plans.alltoall(4))
    world = launch.PlanRanks(gpu_text.built(plan, CUDA, dtype, "sum", tmp_path), plan, "cuda")
    for seed, count in enumerate((1, 61, 1003)):
        for offset in (0, 1):
            p = Pattern(plan.collective, dtype, "sum", count, seed)
            assert world.wrong(p, micro_batch_bytes=64, offset=offset) == 0


PACKETS = [
    ("float16", "sum"),
    ("complex128", "sum"),
    *(slow(d, o) for d, o in (("int8", "avg"), ("bfloat16", "sum"), ("float64", "max"))),
    *(slow(d, o) for d, o in (("bool", "land"), ("complex64", "prod"), ("float8e4m3", "sum"))),
]


@pytest.mark.slow
@pytest.mark.parametrize("target", [CUDA, HIP], ids=lambda t: t.name)
@pytest.mark.parametrize(("dtype", "op"), PACKETS)
@pytest.mark.parametrize("fuse", ["auto", slow("none")])
def test_packets_have_the_bits_of_the_cpu(
    dtype: str, op: str, fuse: str, target: Target, tmp_path: Path
) -> None:
    """Of any lengths, at any element of a buffer, before and after epochs wrap."""
    options = Options(protocol="ll", fuse=fuse, channels=2)
    plan = driver.compile_program(plans.mesh_allreduce(4), options).plan
    world = launch.PlanRanks(gpu_text.built(plan, target, dtype, op, tmp_path), plan, target.name)
    for flags in world.flags:
        for block in range(world.shape.blocks * world.shape.channels):
            flags.view(np.uint32)[32 * (world.shape.state_at + block) + 1] = 0xFFFFFFFB
    rng, kind = np.random.default_rng(5), DTYPES[dtype]
    for count in (0, 1, 3, 1021, 7, 64, 2, 0, 900, 5):
        values = [rng.integers(0, 50, count).astype(kind) for _ in range(4)]
        request = LaunchRequest(count, dtype, op)
        wanted = kernels.launch(plan, values, request)
        for offset, in_place in ((0, False), (1, True)):
            buffers = []
            for value in values:
                send, receive = (aligned_zeros((count + 1) * kind.itemsize) for _ in range(2))
                at = slice(offset, offset + count)
                pair = send.view(kind)[at], (send if in_place else receive).view(kind)[at]
                pair[0][:] = value
                buffers.append(pair)
            call = CallRecord.of(count=count, timeout_s=20, in_place=in_place)
            assert world.launch(buffers, call, dtype, op) == 0
            assert [b.tobytes() for _, b in buffers] == [w.tobytes() for w in wanted], count


def summed(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Sums 16-bit floats left to right in float32, rounds once, and has one NaN."""
    with np.errstate(all="ignore"):
        total = values[0].astype(np.float32)
        for value in values[1:]:
            total = total + value.astype(np.float32)
    return rounded(total, values[0].dtype)


def rounded(values: NDArray[np.float32], dtype: Any) -> NDArray[Any]:
    """Rounds to a 16-bit float to nearest even; a NaN becomes 0x7fff."""
    with np.errstate(all="ignore"):
        result = values.astype(dtype)
    result.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return result


@pytest.mark.parametrize("target", ["cpu", "cuda", "hip"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_reduction_has_one_nan(dtype: str, target: str, tmp_path: Path) -> None:
    """Whatever its sources were: NaNs of both kinds and signs, or infinities of both signs."""
    library, rng, kind = body(target, dtype, tmp_path), np.random.default_rng(4), DTYPES[dtype]
    for k in (2, MOST):
        for n, shift in ((5000, 0), (5000, 1), (7, 0)):
            sources = [any_bits(rng, kind, n) for _ in range(k)]
            sources[0][1::7], sources[1][1::7] = np.inf, -np.inf
            at = [aligned_zeros((n + 1) * kind.itemsize).view(kind) for _ in range(k + 1)]
            for one, values in zip(at, sources, strict=False):
                one[shift : shift + n] = values
            run(library, f"sum_{k}", [a[shift:] for a in at], n)
            wanted = summed(sources)
            assert at[k][shift : shift + n].tobytes() == wanted.tobytes(), (k, n, shift)


@pytest.mark.parametrize("target", ["cpu", "cuda", "hip"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_target_rounds_alike(dtype: str, target: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    edges = [0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF, 0x477FEFFF, 0x477FF000, 0x7F7F8000]
    x = np.concatenate([x, np.array(edges, np.uint32).view(np.float32)])
    found = np.empty(x.size, DTYPES[dtype])
    body(target, dtype, tmp_path)["round_all"](
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(found.ctypes.data), ctypes.c_long(x.size)
    )
    assert found.tobytes() == rounded(x, DTYPES[dtype]).tobytes()
