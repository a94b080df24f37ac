"""Arrays of any library: where their memory is, or why it cannot be used."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import ALL
from hccc.runtime.device.arrays import ArrayBuffer, _Tensor, _Versioned, buffer_of
from tests.runtime.device.harness import Runtime

CODES = {"i": 0, "u": 1, "f": 2}


class InterfaceArray:
    """An array that has only an array interface."""

    def __init__(self, name: str, **found: Any) -> None:
        setattr(self, name, found)


class DlpackArray:
    """An array of a library with DLPack, of any device and element type."""

    def __init__(
        self,
        *,
        device: tuple[int, int] = (1, 0),
        code: int = 2,
        bits: int = 32,
        lanes: int = 1,
        shape: tuple[int, ...] = (2, 3),
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        data: int = 4096,
        version: int | None = None,
        flags: int = 0,
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self._device = device
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        tensor = _Tensor(data, *device, len(shape), code, bits, lanes, self._shape, None, offset)
        if self._strides is not None:
            tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        self._version = version
        managed = _Versioned(version or 0, 0, None, None, flags, tensor)
        self._kept = tensor if version is None else managed

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **asked: Any) -> Any:
        if self._version is None and "max_version" in asked:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.asked.append(asked)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        # The name must live as long as the capsule.
        self._name = b"dltensor" if self._version is None else b"dltensor_versioned"
        return new(ctypes.addressof(self._kept), self._name, None)


class ForeignArray:
    """A NumPy array as another library's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given)


def numpy_of(name: str) -> np.dtype[Any]:
    """Returns the NumPy type of a dtype of hccc."""
    (found,) = (dtype for dtype in ALL if dtype.name == name)
    of: Any = getattr(np, found.numpy, None) or getattr(ml_dtypes, found.numpy)
    made: np.dtype[Any] = np.dtype(of)
    return made


@pytest.mark.parametrize("dtype", [d.name for d in ALL])
def test_arrays_of_numpy(dtype: str) -> None:
    array = np.zeros((3, 4), numpy_of(dtype))
    found = buffer_of(array, writable=True)
    assert found == ArrayBuffer(array.ctypes.data, 12, dtype, "cpu", 0, array)
    assert found.bytes == array.nbytes


@pytest.mark.parametrize("dtype", [d.name for d in ALL if hasattr(np, d.numpy)])
def test_arrays_of_any_library_on_the_host(dtype: str) -> None:
    array = np.zeros((3, 4), numpy_of(dtype))[1:]
    expected = (array.ctypes.data, array.nbytes, dtype, "cpu", 0)
    interface = InterfaceArray("__array_interface__", **array.__array_interface__)
    for given_ in (ForeignArray(array), interface):
        found = buffer_of(given_, writable=True)
        assert (
            found.pointer,
            found.bytes,
            found.dtype,
            found.platform,
            found.device,
        ) == expected


@given(data=st.data())
def test_gaps_are_seen_as_numpy_sees_them(data: st.DataObject) -> None:
    array = np.zeros(data.draw(nps.array_shapes(max_dims=3, min_side=1, max_side=4)), np.float32)
    view: Any = array[data.draw(nps.basic_indices(array.shape, allow_newaxis=True))]
    if not isinstance(view, np.ndarray):
        return
    view = view.transpose(data.draw(st.permutations(range(view.ndim))))
    for given_ in (view, ForeignArray(view)):
        if view.flags.c_contiguous:
            assert buffer_of(given_).elements == view.size
            if view.size:
                assert buffer_of(given_).pointer == view.ctypes.data
        else:
            with pytest.raises(UserError, match=r"E471.*not contiguous"):
                buffer_of(given_)


def test_the_memory_lives_as_long_as_the_buffer() -> None:
    import gc
    import weakref

    array = np.arange(10.0)
    gone = weakref.ref(array)
    found = buffer_of(ForeignArray(array))
    del array
    gc.collect()
    assert gone() is not None
    assert ctypes.c_double.from_address(found.pointer + 8 * 9).value == 9
    del found
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("kind", "platform", "stream"),
    [(2, "cuda", -1), (10, "hip", -1), (13, "cuda", -1), (3, "cpu", None), (1, "cpu", None)],
)
@pytest.mark.parametrize("version", [None, 1])
def test_arrays_on_devices(
    kind: int, platform: str, stream: int | None, version: int | None
) -> None:
    """In both forms of DLPack; the exporter waits for nothing."""
    array = DlpackArray(device=(kind, 3), version=version, offset=64)
    found = buffer_of(array)
    device = 0 if platform == "cpu" else 3
    assert (found.platform, found.device, found.pointer) == (platform, device, 4096 + 64)
    assert (found.bytes, found.elements, found.dtype) == (24, 6, "float32")
    assert array.asked[0]["stream"] == stream


@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [
        (4, 16, "bfloat16"),
        (10, 8, "float8e4m3"),
        (12, 8, "float8e5m2"),
        (2, 16, "float16"),
        (0, 64, "int64"),
        (1, 8, "uint8"),
    ],
)
def test_element_types_of_dlpack(code: int, bits: int, dtype: str) -> None:
    assert buffer_of(DlpackArray(code=code, bits=bits)).dtype == dtype


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        (DlpackArray(code=5, bits=32), "elements of kind 5, 32 bits"),  # complex
        (DlpackArray(lanes=4), "4 lanes"),
        (DlpackArray(device=(8, 0)), "device of kind 8"),
        (DlpackArray(strides=(1, 2)), "not contiguous"),
        (DlpackArray(data=0), "no memory"),
        (DlpackArray(version=2), "version 2 of DLPack"),
        (np.zeros(3, "M8[s]"), "elements of `datetime64"),
        (np.zeros(3, ">f4"), "elements of `>f4`"),
        (np.zeros(3, np.longdouble), "elements of `float128`"),
        (np.zeros(9, np.float32)[::2], "not contiguous"),
        (np.zeros((2, 2), "f4,f4")["f0"], "not contiguous"),
        (InterfaceArray("__array_interface__", shape=(1,)), "describes itself wrongly"),
        (
            InterfaceArray(
                "__array_interface__", shape=(1,), typestr="<f4", data=(8, False), mask=1
            ),
            "is masked",
        ),
        ([1.0, 2.0], "builtins.list is no array"),
        (np.ndarray, "no array"),
        (None, "no array"),
    ],
)
def test_what_is_refused(given_: Any, what: str) -> None:
    with pytest.raises(UserError, match=rf"E471.*{what}"):
        buffer_of(given_)


def test_an_exporter_that_refuses() -> None:
    """As a tensor of PyTorch that wants its gradient."""

    class Refuses(DlpackArray):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    with pytest.raises(UserError, match=r"E471.*Can't export(.|\n)*detach"):
        buffer_of(Refuses())


def test_read_only_arrays() -> None:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    for given_ in (
        array,
        DlpackArray(version=1, flags=1),
        InterfaceArray("__array_interface__", **array.__array_interface__),
    ):
        assert buffer_of(given_).elements
        with pytest.raises(UserError, match=r"E471.*read-only"):
            buffer_of(given_, writable=True)


def test_the_interface_of_cuda() -> None:
    found = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3}
    array = InterfaceArray("__cuda_array_interface__", **found)
    b = buffer_of(array)
    assert (b.platform, b.device, b.pointer, b.bytes) == ("cuda", 0, 4096, 24)
    array.device = type("Device", (), {"id": 5})()  # type: ignore[attr-defined]
    assert buffer_of(array).device == 5
    with pytest.raises(UserError, match="not contiguous"):
        buffer_of(InterfaceArray("__cuda_array_interface__", **found, strides=(4, 8)))


def test_empty_arrays() -> None:
    assert buffer_of(np.zeros((0, 3), np.float32)).bytes == 0
    assert buffer_of(DlpackArray(shape=(0, 3), data=0)).bytes == 0


def test_a_buffer_is_copied_to_a_device(rt: Runtime) -> None:
    array = np.arange(1000, dtype=np.float32)
    found = buffer_of(array)
    pointer = rt.handle("Malloc", found.bytes)
    rt("Memcpy", pointer, found.pointer, found.bytes, 1)
    assert rt.get(pointer, found.bytes) == array.tobytes()


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_of_libraries_that_are_here(library: str) -> None:
    module = pytest.importorskip(library)
    if library == "cupy" and not module.cuda.is_available():
        pytest.skip("no GPU")
    array = module.zeros((3, 4), dtype=module.float32)
    found = buffer_of(array, writable=True)
    pointer = array.data_ptr() if library == "torch" else array.data.ptr
    assert (found.pointer, found.bytes, found.dtype) == (pointer, 48, "float32")
    assert found.platform == ("cpu" if library == "torch" else "cuda")
    if library == "torch":
        assert buffer_of(array.bfloat16()).dtype == "bfloat16"
        assert buffer_of(array.requires_grad_(), writable=True).pointer == pointer
        for refused in (array.detach().t(), array.detach().to_sparse()):
            with pytest.raises(UserError, match="E471"):
                buffer_of(refused)
        if module.cuda.is_available():
            assert buffer_of(array.detach().cuda()).platform in ("cuda", "hip")
