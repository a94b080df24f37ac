"""The CPU launcher: every dtype and reduction, sizes, windows, launches back to back."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import DEFAULT_OPS, reduces
from hccc.ir.collective import Collective, OpType
from hccc.runtime.cpu import CpuLauncher
from hccc.runtime.layout import DTYPES
from hccc.runtime.request import LaunchRequest
from tests.marks import slow
from tests.runtime.handwritten import (
    ALLGATHER,
    ALLREDUCE,
    MANY,
    MESH,
    RING,
    STAGED,
    communicator,
    misaligned,
    pattern,
)

COUNTS = (0, 1, 7, 1000, 100003)
WINDOWS = (1, 3, 0)
COMBINE: dict[str, Any] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    # The left of equals, and the right one of NaNs, which propagate.
    "min": lambda a, b: np.where((b < a) | (b != b), b, a),
    "max": lambda a, b: np.where((a < b) | (b != b), b, a),
}


def reduced(values: list[NDArray[Any]], op: str, ranks: int) -> NDArray[Any]:
    """Reduces left to right, as the device does: wider for short floats, rounded once."""
    dtype = values[0].dtype
    short = dtype.kind not in "biu" and dtype.itemsize < 4
    wide = [v.astype(np.float32) if short else v for v in values]
    with np.errstate(all="ignore"):
        result: Any = wide[0]
        for value in wide[1:]:
            result = COMBINE[op](result, value)
        if op == "avg" and result.dtype.kind == "i":
            quotient = np.abs(result.astype(object)) // ranks  # C truncates
            result = (np.sign(result) * quotient.astype(result.dtype)).astype(result.dtype)
        elif op == "avg":
            whole = result.dtype.kind == "u"
            result = result // ranks if whole else result / result.real.dtype.type(ranks)
        return stored(result, dtype)


def stored(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Converts to the dtype; 8-bit floats saturate, and those of 8 and 16 bits have one NaN."""
    if dtype.itemsize > 2 or dtype.kind in "biu":
        return values.astype(dtype)
    if dtype.itemsize == 2:
        bits = values.astype(dtype).view(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FFF), bits).view(dtype)
    largest = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    bits = np.clip(values, -largest, largest).astype(dtype).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F), bits).view(dtype)


def mesh_result(inputs: list[NDArray[Any]], op: str) -> NDArray[Any]:
    """Returns the mesh's result: chunk c is reduced from rank c on."""
    count = inputs[0].size
    part = MESH.sizes(count, inputs[0].itemsize).part * MESH.channels
    chunks = []
    for c in range(4):
        piece = slice(min(c * part, count), min((c + 1) * part, count))
        chunks.append(reduced([inputs[(c + i) % 4][piece] for i in range(4)], op, 4))
    return np.concatenate(chunks)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Tells whether two arrays are equal to the last bit, whatever the dtype."""
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def mesh() -> CpuLauncher:
    return communicator("mesh", MESH, ALLREDUCE)


@pytest.fixture(scope="module")
def ring() -> CpuLauncher:
    return communicator("ring", RING, ALLREDUCE)


@pytest.fixture(scope="module")
def staged() -> CpuLauncher:
    return communicator("staged", STAGED, ALLGATHER)


def random_values(rng: np.random.Generator, count: int, dtype: str) -> NDArray[Any]:
    """Draws all bit patterns of integers, or floats of very different sizes."""
    kind = DTYPES[dtype]
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, count) == 1)
    if kind.kind == "c":
        parts = rng.standard_normal(2 * count).astype(f"f{kind.itemsize // 2}")
        return parts.view(kind)
    if kind.kind in "iu":
        return rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(kind)


ALONE = ("bfloat16", "int8")  # quickly


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", [d if d in ALONE else slow(d) for d in DTYPES])
def test_every_dtype_and_reduction(mesh: CpuLauncher, dtype: str) -> None:
    rng = np.random.default_rng(5)
    ops = [op for op in DEFAULT_OPS if reduces(dtype, op)]  # test_reductions.py has the others
    mesh.build([LaunchRequest(0, dtype, op) for op in ops])
    for op in ops:
        inputs = [random_values(rng, 5003, dtype) for _ in range(4)]
        outputs = [np.zeros(5003, DTYPES[dtype]) for _ in range(4)]
        mesh.launch(inputs, outputs, LaunchRequest(5003, dtype, op))
        expected = mesh_result(inputs, op)
        for output in outputs:
            assert same_bits(output, expected), op


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_value(mesh: CpuLauncher, dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    inputs = [every, np.zeros_like(every), np.roll(every, 1), np.roll(every, 777)]
    outputs = [np.zeros_like(every) for _ in range(4)]
    mesh.launch(inputs, outputs, LaunchRequest(every.size, dtype))
    expected = mesh_result(inputs, "sum")
    assert np.isnan(expected.astype(np.float32)).any()
    for output in outputs:
        assert same_bits(output, expected)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", ["float8e4m3", "float8e5m2"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_every_pair_of_8_bit_values(mesh: CpuLauncher, dtype: str, op: str) -> None:
    a, b = (x.ravel() for x in np.indices((256, 256), np.uint8))
    inputs = [x.astype(np.uint8).view(DTYPES[dtype]) for x in (a, b, b[::-1], a ^ b)]
    outputs = [np.zeros(a.size, DTYPES[dtype]) for _ in range(4)]
    mesh.launch(
        [np.ascontiguousarray(x) for x in inputs], outputs, LaunchRequest(a.size, dtype, op)
    )
    expected = mesh_result(inputs, op)
    for output in outputs:
        assert same_bits(output, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", *map(slow, ["float16", "float64", "float8e4m3"])]
)
def test_a_nan_of_any_rank_propagates(mesh: CpuLauncher, dtype: str) -> None:
    """In min and max, as np.minimum and np.maximum have it, wherever in a vector it is."""
    rng = np.random.default_rng(3)
    count = 1003
    inputs = [random_values(rng, count, dtype) for _ in range(4)]
    for i in range(0, count, 3):
        inputs[i // 3 % 4][i] = np.nan
    for op, wanted in (("min", np.minimum), ("max", np.maximum)):
        outputs = [np.zeros(count, DTYPES[dtype]) for _ in range(4)]
        mesh.launch(inputs, outputs, LaunchRequest(count, dtype, op))
        expected = wanted.reduce([x.astype(np.float64) for x in inputs])
        assert np.isnan(expected).sum() == -(-count // 3)
        for output in outputs:
            assert np.array_equal(output.astype(np.float64), expected, equal_nan=True), op


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("workers", [1, 2, slow(3)])
def test_ring_allreduce(ring: CpuLauncher, workers: int, in_place: bool) -> None:
    for count, window, micro in itertools.product(COUNTS, WINDOWS, (16, 1024, 0)):
        if count == 100003 and micro == 16 and window != 3:
            continue  # thousands of windows: one case is enough
        inputs = [pattern(r, count, np.int32) for r in range(4)]
        expected = np.add.reduce(inputs, dtype=np.int32)
        outputs = inputs if in_place else [np.zeros(count, np.int32) for _ in range(4)]
        ring.launch(
            inputs,
            outputs,
            LaunchRequest(
                count, "int32", in_place=in_place, window=window, micro_batch=micro, workers=workers
            ),
        )
        for output in outputs:
            assert same_bits(output, expected)


@pytest.mark.quick(1)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_staged_allgather(staged: CpuLauncher, workers: int, in_place: bool) -> None:
    for count, window, micro in itertools.product(COUNTS, WINDOWS, (16, 1024, 0)):
        if count == 100003 and micro == 16 and window != 3:
            continue
        expected = np.concatenate([pattern(r, count, np.float32) for r in range(4)])
        outputs = [np.zeros(4 * count, np.float32) for _ in range(4)]
        inputs = [o[r * count : (r + 1) * count] for r, o in enumerate(outputs)]
        if not in_place:
            inputs = [np.zeros(count, np.float32) for _ in range(4)]
        for r in range(4):
            inputs[r][:] = pattern(r, count, np.float32)
        staged.launch(
            inputs,
            outputs,
            LaunchRequest(
                count,
                "float32",
                in_place=in_place,
                window=window,
                micro_batch=micro,
                workers=workers,
            ),
        )
        for output in outputs:
            assert same_bits(output, expected)


def test_launches_back_to_back_are_ordered(ring: CpuLauncher) -> None:
    """In place, a launch that started early would multiply a value twice."""
    values = [np.full(2500, r + 1, np.int32) for r in range(4)]
    expected: NDArray[Any] = np.full(2500, 10, np.int32)
    for _ in range(60):
        ring.launch(
            values, values, LaunchRequest(2500, "int32", in_place=True, micro_batch=256, workers=2)
        )
        assert all(same_bits(v, expected) for v in values)
        expected = expected * np.int32(4)


def test_counters_wrap(ring: CpuLauncher, staged: CpuLauncher) -> None:
    start = 0xFFFFFFF0
    for flags in ring.flags:
        words = flags.view(np.uint32)
        words[:] = start
        words[2::32] = 0  # no launch was lost
    for flags in staged.flags:
        words = flags.view(np.uint32)
        words[:] = start
        words[2 * 32 : 4 * 32] = start * 3 & 0xFFFFFFFF  # a queue counts 3 messages a micro-batch
        words[2::32] = 0
    for count in (5000, 100, 7000):
        inputs = [pattern(r, count, np.int32) for r in range(4)]
        outputs = [np.zeros(count, np.int32) for _ in range(4)]
        request = LaunchRequest(count, "int32", micro_batch=512, workers=2, timeout=20)
        ring.launch(inputs, outputs, request)
        assert all(same_bits(o, np.add.reduce(inputs, dtype=np.int32)) for o in outputs)
        gathered = [np.zeros(4 * count, np.int32) for _ in range(4)]
        staged.launch(inputs, gathered, request)
        assert all(same_bits(g, np.concatenate(inputs)) for g in gathered)


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
def test_misaligned_buffers(mesh: CpuLauncher, dtype: str) -> None:
    count = 3001
    inputs = [misaligned(count, DTYPES[dtype], 1 + r) for r in range(4)]
    outputs = [misaligned(count, DTYPES[dtype], 5 - r) for r in range(4)]
    for r in range(4):
        inputs[r][:] = pattern(r, count, DTYPES[dtype])
    mesh.launch(inputs, outputs, LaunchRequest(count, dtype))
    expected = mesh_result(inputs, "sum")
    assert all(same_bits(o, expected) for o in outputs)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_thousands_of_blocks(workers: int) -> None:
    collective = Collective(OpType.SENDRECV, 32, 32 * 16)
    many = communicator("many", MANY, collective)
    inputs = [pattern(r, 30011, np.float32) + r for r in range(32)]
    outputs = [np.zeros(30011, np.float32) for _ in range(32)]
    many.launch(
        inputs, outputs, LaunchRequest(30011, "float32", micro_batch=128, window=2, workers=workers)
    )
    for r in range(32):
        assert same_bits(outputs[(r + 1) % 32], inputs[r])


def test_bad_arguments_are_refused(ring: CpuLauncher) -> None:
    inputs = [np.zeros(10, np.float32) for _ in range(4)]
    outputs = [np.zeros(10, np.float32) for _ in range(4)]
    request = LaunchRequest(10, "float32")
    for bad_inputs, bad_outputs, code in (
        (inputs[:3], outputs, "E422"),
        ([None, *inputs[1:]], outputs, "E422"),
        ([np.zeros(9, np.float32), *inputs[1:]], outputs, "E422"),
        ([np.zeros(10, np.int32), *inputs[1:]], outputs, "E422"),
        ([np.zeros((10, 2), np.float32)[:, 0], *inputs[1:]], outputs, "E422"),
        (inputs, [np.broadcast_to(np.float32(0), 10), *outputs[1:]], "E422"),
    ):
        with pytest.raises(UserError) as error:
            ring.launch(bad_inputs, bad_outputs, request)
        assert error.value.problem.code == code
    with pytest.raises(UserError) as error:
        ring.launch(inputs, outputs, LaunchRequest(10, "float32", in_place=True))
    assert error.value.problem.code == "E423"
    with pytest.raises(UserError, match="premul_sum: 2 scalars for 4 ranks"):
        ring.launch(inputs, outputs, LaunchRequest(10, "float32", "premul_sum", scalars=(1, 2)))
    for wrong in (
        partial(LaunchRequest, -1, "float32"),
        partial(LaunchRequest, 1, "float32", timeout=-1.0),
        partial(LaunchRequest, 1, "float32", window=-1),
        partial(LaunchRequest, 1, "float8"),
        partial(LaunchRequest, 1, "float32", op="xor"),
    ):
        with pytest.raises(UserError):
            wrong()
