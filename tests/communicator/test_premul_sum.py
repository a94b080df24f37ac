"""Sums of what each rank gives times its own scalar."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hccc
from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.stream import Stream
from hccc.runtime.layout import DTYPES
from tests.communicator.world import run, start
from tests.emit import plans

N = 101
SCALARS = (3, -2, 0)  # of ranks


def given(rank: int, dtype: str, blocks: int = 1) -> np.ndarray[Any, Any]:
    return (np.arange(N * blocks) % 7 + rank).astype(DTYPES[dtype])


def summed(n_ranks: int, dtype: str, blocks: int = 1) -> np.ndarray[Any, Any]:
    """Adds what ranks give times their scalars; integers wrap."""
    total = sum(SCALARS[r] * given(r, dtype, blocks).astype(np.int64) for r in range(n_ranks))
    return np.asarray(total).astype(DTYPES[dtype])


def scalar(rank: int, dtype: str) -> Any:
    """Returns a rank's scalar as the dtype has it: an unsigned integer wraps."""
    return np.array(SCALARS[rank]).astype(DTYPES[dtype])[()]


def every_collective(c: Communicator, dtype: str) -> list[bool]:
    n, own = c.n_ranks, hccc.premul_sum(scalar(c.rank, dtype))
    right = []

    def told(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
        right.append(bool(np.array_equal(got.astype(np.float64), want.astype(np.float64))))

    x = given(c.rank, dtype)
    c.all_reduce(x, op=own)
    told(x, summed(n, dtype))
    x, out = given(c.rank, dtype), np.zeros(N, DTYPES[dtype])
    c.all_reduce(x, out, op=own)
    told(out, summed(n, dtype))
    told(x, given(c.rank, dtype))
    wide, out = given(c.rank, dtype, n), np.zeros(N, DTYPES[dtype])
    c.reduce_scatter(wide, out, op=own)
    told(out, summed(n, dtype, n)[N * c.rank :][:N])
    root = n - 1
    c.reduce(x, out if c.rank == root else None, root=root, op=own)
    if c.rank == root:
        told(out, summed(n, dtype))
    lengths = [N // 2 + k for k in range(n)]
    out = np.zeros(lengths[c.rank], DTYPES[dtype])
    c.reduce_scatter_v(given(c.rank, dtype, n)[: sum(lengths)], out, lengths, op=own)
    begin = sum(lengths[: c.rank])
    told(out, summed(n, dtype, n)[begin:][: lengths[c.rank]])
    return right


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Emits an AllReduce of two ranks."""
    place = tmp_path_factory.mktemp("premul") / "k"
    return plans.written(plans.compiled(plans.mesh_allreduce(2)), place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_ranks", "dtype"), [(3, "float16"), (2, "int8"), (1, "float64"), (2, "uint64")]
)
def test_every_collective_that_reduces(n_ranks: int, dtype: str) -> None:
    """With standard libraries, which are made for the calls."""
    made = {"HCCC_STANDARD": "1", "HCCC_TIMEOUT": "300", "HCCC_PROGRESS": "off"}
    found = start(n_ranks, every_collective, dtype, environment=made).outcomes(timeout=300)
    for right in found.values():
        assert all(right) and len(right) >= 5, right


def loaded(c: Communicator, place: Path) -> None:
    c.load(place, ["float32"], ["premul_sum"])


def in_memory(c: Communicator, place: Path) -> list[bool]:
    loaded(c, place)
    held, x = np.zeros(1, np.float32), given(c.rank, "float32")
    held[0] = 7
    later = given(c.rank, "float32")
    with Stream() as stream:
        stream.then(lambda: held.__setitem__(0, SCALARS[c.rank]))
        c.all_reduce(x, op=hccc.premul_sum(held), stream=stream)
        c.all_reduce(later, op=hccc.premul_sum(SCALARS[c.rank]), stream=stream)
        stream.synchronize()
    want = summed(c.n_ranks, "float32")
    return [bool(np.array_equal(one, want)) for one in (x, later)]


@pytest.mark.slow
def test_a_scalar_in_memory_is_read_when_the_call_runs(kernels: Path) -> None:
    assert run(2, in_memory, kernels) == [[True, True]] * 2


def refused(c: Communicator) -> list[str]:
    told = []

    def tell(call: Callable[[], object]) -> None:
        try:
            call()
        except (UserError, CommunicatorError) as error:
            told.append(str(error))

    def reduce(dtype: str, scalar: Any) -> None:
        tell(lambda: c.all_reduce(np.ones(4, DTYPES[dtype]), op=hccc.premul_sum(scalar)))

    reduce("int32", 0.5)
    reduce("uint8", -1)
    reduce("uint8", 256)
    reduce("int8", -129)
    reduce("float16", 1e6)
    reduce("float32", np.ones(2, np.float32))
    reduce("float32", np.ones(1, np.float64))
    reduce("complex64", 2)
    reduce("bool", 1)
    tell(lambda: c.all_reduce(np.ones(4, np.float32), op="premul_sum"))
    return told


def test_wrong_scalars_are_refused() -> None:
    for told in run(2, refused):
        assert len(told) == 10, told
        for text, said in zip(
            (
                "0.5 is no int32",
                "-1 is no uint8\nhelp: a whole number from 0 to 255",
                "256 is no uint8",
                "-129 is no int8\nhelp: a whole number from -128 to 127",
                "1000000.0 is too large for float16",
                "the scalar is 2 elements of float32",
                "the scalar is 1 elements of float64",
                "there is no premul_sum of complex64",
                "there is no premul_sum of bool",
                "premul_sum needs a scalar",
            ),
            told,
            strict=True,
        ):
            assert text in said


def by_number(c: Communicator, place: Path) -> list[Any]:
    loaded(c, place)
    call, x = library().call, given(c.rank, "float32")
    made, value = ctypes.c_int(), ctypes.c_float(SCALARS[c.rank])

    def reduce(number: int, dtype: int = 7) -> int:
        return int(
            call("AllReduce", x.ctypes.data, x.ctypes.data, N, dtype, number, c.handle, None)
        )

    create = (ctypes.byref(made), ctypes.byref(value), 7)
    told: list[Any] = [call("RedOpCreatePreMulSum", *create, 2, c.handle)]
    told.append(call("RedOpCreatePreMulSum", *create, 1, c.handle))
    value.value = 99  # it is immediate: read already
    told += [reduce(made.value), bool(np.array_equal(x, summed(c.n_ranks, "float32")))]
    told.append(reduce(made.value, 8))  # another type
    told.append(call("RedOpDestroy", made.value, c.handle))
    told.append(call("RedOpDestroy", made.value, c.handle))
    told.append(reduce(made.value))
    return told


def test_reductions_of_the_c_interface(kernels: Path) -> None:
    ok, wrong = 0, 4
    for told in run(2, by_number, kernels):
        assert told == [wrong, ok, ok, True, wrong, ok, wrong, wrong]
