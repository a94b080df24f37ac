"""arrays: finds the memory of an array of NumPy, CuPy, PyTorch or another library.

An array is read in three ways, none of which copies: NumPy's own attributes, DLPack (`__dlpack__`),
and the array interfaces of NumPy and of CUDA. Element types that NumPy lacks exist in DLPack only.
Work on the array that is under way is not waited for: launches go into the array's stream.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hccc.base.diagnostics import UserError, fail
from hccc.base.dtypes import ALIASES, BY_NAME
from hccc.runtime.layout import DTYPES

# DLDeviceType → platform and whether devices address it as their own.
_DEVICES: Mapping[int, str] = {
    1: "cpu",  # kDLCPU
    2: "cuda",  # kDLCUDA
    3: "cpu",  # kDLCUDAHost
    10: "hip",  # kDLROCM
    11: "cpu",  # kDLROCMHost
    13: "cuda",  # kDLCUDAManaged
}
# DLDataTypeCode, bits → dtype
_DTYPES: Mapping[tuple[int, int], str] = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    **{(5, bits): f"complex{bits}" for bits in (64, 128)},
    (6, 8): "bool",
    (10, 8): "float8e4m3",  # kDLFloat8_e4m3fn
    (12, 8): "float8e5m2",
}
_NUMPY_DTYPES: Mapping[np.dtype[Any], str] = {kind: name for name, kind in DTYPES.items()}
_CONJUGATED = ("complex64", "complex128")  # types of tensors that may be read as their conjugates
# Looked up once: a call looks for two buffers in about a microsecond.
_address_of: Callable[[Any], int] = ctypes.addressof
_at: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer
_made = tuple.__new__  # a NamedTuple's own takes twice as long
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_NO_WAIT = -1  # `stream` of __dlpack__: the exporter waits for nothing
_MAJOR = 1  # of DLPack


class ArrayBuffer(NamedTuple):
    """The memory of a contiguous array.

    pointer: its first byte; dtype: one of `hccc.base.dtypes`; platform: whose device it is on, with
    `cpu` for all host memory; device: the device's number, 0 on the host; owner: keeps it alive.
    """

    pointer: int
    elements: int
    dtype: str
    platform: str
    device: int
    owner: object

    @property
    def bytes(self) -> int:
        """Its length."""
        return self.elements * BY_NAME[self.dtype].bytes


_Reader = Callable[[Any], ArrayBuffer | None]


class _Seen(NamedTuple):
    """The description of an array by its exporter; strides in elements, None: contiguous."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    platform: str
    device: int
    writable: bool
    owner: object


def buffer_of(array: Any, *, writable: bool = False) -> ArrayBuffer:
    """Finds the memory of `array`, which must lie in C order without gaps. writable: it will be
    written. A tensor of PyTorch that requires a gradient is read and written as `array.detach()`:
    gradients do not pass through a call.

    Raises UserError E471.
    """
    read = _READERS.get(type(array)) or _reader_of(type(array))
    return (read and read(array)) or _described(array, writable)


def _reader_of(kind: type) -> _Reader | None:
    """Returns what reads arrays of a kind quickly, where something does."""
    if kind.__module__ not in ("torch", "torch.nn.parameter"):
        return None
    torch, read = sys.modules["torch"], _reader_of_tensors()
    _READERS.update({torch.Tensor: read, torch.nn.Parameter: read})
    return _READERS.get(kind)


def _plain_numpy(array: np.ndarray[Any, Any]) -> ArrayBuffer | None:
    """Finds the memory of an array without anything to refuse, quickly; None: another array."""
    dtype = _NUMPY_DTYPES.get(array.dtype)
    if dtype is None:
        return None
    try:
        # The quickest way to an address. It refuses what is read-only or has gaps, what has no
        # elements, and types that buffers do not have.
        pointer = _address_of(_at(array.data))
    except (TypeError, ValueError):
        if not array.flags.c_contiguous or not array.flags.writeable:
            return None
        pointer = array.ctypes.data
    return _made(ArrayBuffer, (pointer, array.size, dtype, "cpu", 0, array))


_READERS: dict[type, _Reader] = {np.ndarray: _plain_numpy}


def _reader_of_tensors() -> _Reader:
    """Returns what finds the memory of a tensor of PyTorch, as `_plain_numpy`."""
    torch = sys.modules["torch"]
    names = (*BY_NAME, *ALIASES)
    known = {getattr(torch, one): ALIASES.get(one, one) for one in names if hasattr(torch, one)}
    strided = torch.strided

    def plain_tensor(array: Any) -> ArrayBuffer | None:
        if not array.is_cpu or array.layout is not strided:
            return None
        try:
            dtype = known.get(array.dtype)
            if dtype is None or array.is_neg() or not array.is_contiguous():
                return None
            if dtype in _CONJUGATED and array.is_conj():
                return None
            pointer, count = array.data_ptr(), array.numel()
        except RuntimeError:  # it has no memory, as in a trace
            return None
        return _made(ArrayBuffer, (pointer, count, dtype, "cpu", 0, array))

    return plain_tensor


def _described(array: Any, writable: bool) -> ArrayBuffer:
    seen = _ask(array.detach() if getattr(array, "requires_grad", False) is True else array)
    count = prod(seen.shape)
    if count and not _is_contiguous(seen.shape, seen.strides):
        raise _refuse(array, "is not contiguous", "copy it: `ascontiguousarray`, `.contiguous()`")
    if writable and not seen.writable:
        raise _refuse(array, "is read-only", "pass a copy")
    if count and not seen.pointer:
        raise _refuse(array, "has elements and no memory")
    return ArrayBuffer(seen.pointer, count, seen.dtype, seen.platform, seen.device, seen.owner)


def _refuse(array: Any, what: str, remedy: str | None = None) -> UserError:
    of = type(array)
    return fail("E471", f"an array of {of.__module__}.{of.__qualname__} {what}", help=remedy)


def _is_contiguous(shape: Iterable[int], strides: Iterable[int] | None) -> bool:
    """Returns whether elements lie in C order. Strides of dimensions of one element are ignored."""
    if strides is None:
        return True
    expected = 1
    for extent, stride in reversed(list(zip(shape, strides, strict=True))):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _ask(array: Any) -> _Seen:
    if isinstance(array, np.ndarray):
        return _numpy(array)
    if isinstance(array, type):
        raise _no_array(array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _dlpack(array)
    if (found := getattr(array, "__cuda_array_interface__", None)) is not None:
        return _interface(array, found, "cuda")
    if (found := getattr(array, "__array_interface__", None)) is not None:
        return _interface(array, found, "cpu")
    raise _no_array(array)


def _no_array(array: Any) -> UserError:
    of = type(array)
    return fail(
        "E471",
        f"{of.__module__}.{of.__qualname__} is no array",
        help="pass an array of NumPy, CuPy or PyTorch, or of a library with DLPack",
    )


def _dtype_of(array: Any, dtype: np.dtype[Any]) -> str:
    name = ALIASES.get(dtype.name, dtype.name)
    if name not in BY_NAME or not dtype.isnative:
        raise _refuse(array, f"has elements of `{dtype}`", f"one of: {', '.join(BY_NAME)}")
    return name


def _numpy(array: np.ndarray[Any, Any]) -> _Seen:
    dtype = _dtype_of(array, array.dtype)
    strides = _elements(array, array.strides, array.itemsize)
    return _Seen(
        array.ctypes.data, dtype, array.shape, strides, "cpu", 0, array.flags.writeable, array
    )


def _elements(array: Any, strides: Iterable[int] | None, size: int) -> tuple[int, ...] | None:
    """Converts strides in bytes to strides in elements."""
    if strides is None:
        return None
    strides = tuple(strides)
    if any(stride % size for stride in strides):
        raise _refuse(array, "is not contiguous", "copy it: `ascontiguousarray`")
    return tuple(stride // size for stride in strides)


def _interface(array: Any, found: Mapping[str, Any], platform: str) -> _Seen:
    """Reads `__array_interface__` or `__cuda_array_interface__` (versions 2 and 3)."""
    try:
        dtype = np.dtype(found["typestr"])
        pointer, read_only = found["data"]
        shape = tuple(int(n) for n in found["shape"])
        strides = found.get("strides")
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(array, f"describes itself wrongly ({error!r})") from error
    if found.get("mask") is not None:
        raise _refuse(array, "is masked", "pass the data without its mask")
    return _Seen(
        int(pointer or 0),
        _dtype_of(array, dtype),
        shape,
        _elements(array, strides, dtype.itemsize),
        platform,
        _device_of(array),
        not read_only,
        array,
    )


def _device_of(array: Any) -> int:
    """Returns the array's device number, else 0: the interface itself has none."""
    device = getattr(array, "device", 0)
    number = getattr(device, "id", getattr(device, "index", device))
    return number if isinstance(number, int) else 0


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _dlpack(array: Any) -> _Seen:
    """Reads a DLPack capsule, which stays unused: the exporter keeps the memory alive."""
    capsule = _capsule(array)
    tensor, read_only = _opened(array, capsule)
    platform = _DEVICES.get(tensor.device_type)
    if platform is None:
        raise _refuse(array, f"is on a device of kind {tensor.device_type} (DLPack)")
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        kind = f"kind {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes (DLPack)"
        raise _refuse(array, f"has elements of {kind}", f"one of: {', '.join(BY_NAME)}")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    return _Seen(
        (tensor.data or 0) + tensor.byte_offset,
        dtype,
        shape,
        strides,
        platform,
        0 if platform == "cpu" else tensor.device_id,
        not read_only,
        (array, capsule),
    )


def _capsule(array: Any) -> Any:
    """Returns the newest form of capsule that the exporter has, without waiting on a GPU's
    stream."""
    try:
        on_host = _DEVICES.get(int(array.__dlpack_device__()[0])) == "cpu"
        stream = None if on_host else _NO_WAIT
        try:
            return array.__dlpack__(stream=stream, max_version=(_MAJOR, 0))
        except TypeError:  # an exporter of before DLPack 1
            return array.__dlpack__(stream=stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise _refuse(array, f"gives no memory away: {lines[0]}", "pass a copy") from error


def _opened(array: Any, capsule: Any) -> tuple[_Tensor, bool]:
    """Returns the tensor of a capsule, and whether it is read-only."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    try:
        name = name_of(capsule)
        if name not in (b"dltensor", b"dltensor_versioned"):
            raise ValueError(f"a capsule named {name!r}")
        address = pointer_of(capsule, name)
    except ValueError as error:
        raise _refuse(array, f"exports no tensor: {error}") from error
    if name == b"dltensor":
        return _Tensor.from_address(address), False
    versioned = _Versioned.from_address(address)
    if versioned.major != _MAJOR:
        raise _refuse(array, f"exports version {versioned.major} of DLPack, which is not known")
    return versioned.tensor, bool(versioned.flags & _READ_ONLY)
