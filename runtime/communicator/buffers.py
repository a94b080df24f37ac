"""buffers: checks of a call's arrays before the runtime library gets them."""

from __future__ import annotations

import ctypes
from typing import Any

from hccc.base import dtypes
from hccc.base.diagnostics import fail
from hccc.base.dtypes import ALIASES, named
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.device.arrays import ArrayBuffer, buffer_of

# The names of hcccDataType_t and hcccRedOp_t, in order.
TYPES = tuple(dtype.name for dtype in sorted(dtypes.ALL, key=lambda one: one.number))
REDUCTIONS = tuple(one.name for one in sorted(dtypes.REDUCTIONS, key=lambda one: one.number))
_NUMBERS = {name: number for number, name in enumerate(TYPES)}
_REDUCTION_NUMBERS = {name: number for number, name in enumerate(REDUCTIONS)}


def reduction_of(op: str) -> int:
    """Returns the number of a reduction, or of one of a program's own that a loaded library has.

    Raises:
        UserError: E411 there is none.
    """
    number = _REDUCTION_NUMBERS.get(op)  # before `named`, which takes longer
    if number is None:
        number = _REDUCTION_NUMBERS.get(named(op))
    if number is not None:
        return number
    found = ctypes.c_int()
    if library().call("RedOpNamed", ctypes.byref(found), named(op).encode()):
        help = f"one of: {', '.join(REDUCTIONS)}; or load a library that has it"
        raise fail("E411", f"unknown reduction `{op}`", help=help)
    return found.value


def number_of_dtype(dtype: str) -> int:
    """Returns the hcccDataType_t of a name. Raises UserError E411."""
    number = _NUMBERS.get(ALIASES.get(dtype, dtype))
    if number is None:
        raise fail("E411", f"unknown type `{dtype}`", help=f"one of: {', '.join(TYPES)}")
    return number


def buffer_on(
    platform: str, name: str, which: str, array: Any, *, writable: bool = False
) -> ArrayBuffer:
    """Finds the memory of a call's array on a platform. Raises UserError E471, E473 where it is
    memory of another platform."""
    found = buffer_of(array, writable=writable)
    if found.platform == platform:
        return found
    if found.platform == "cpu":
        place, remedy = "the host", "copy it to the device: `.cuda()`, `cupy.asarray`"
    else:
        place = f"device {found.device} of {found.platform.upper()}"
        remedy = "copy it to the host: `.cpu()`, `.get()`; or see HCCC_PLATFORM"
    message = f"{name}: {which} is in memory of {place}, and the communicator's is {platform}'s"
    raise fail("E473", message, help=remedy)


def number_of_type(name: str, s: ArrayBuffer | None, r: ArrayBuffer | None) -> int:
    """Returns the hcccDataType_t that both buffers have. Raises UserError E473 where they
    differ."""
    one = s or r
    if one is None:
        raise fail("E473", f"{name}: neither a send nor a receive buffer")
    if r and r.dtype != one.dtype:
        raise fail("E473", f"{name}: send is {one.dtype}, receive {r.dtype}")
    return _NUMBERS[one.dtype]


def block_length(
    name: str, s: ArrayBuffer | None, r: ArrayBuffer | None, blocks: tuple[int, int]
) -> int:
    """Returns the elements of a collective's block, with so many blocks in the send and in the
    receive buffer. Raises UserError E473 where the buffers have other lengths."""
    in_s, in_r = blocks
    if s and r:
        block, left = divmod(s.elements, in_s)
        if not left and r.elements == block * in_r:
            return block
    by_send = s is not None and (r is None or in_s <= in_r)
    whole, parts = (s, in_s) if by_send else (r, in_r)
    assert whole is not None
    block = whole.elements // parts
    if (s is None or s.elements == block * in_s) and (r is None or r.elements == block * in_r):
        return block
    if s is not None and r is not None:
        message = f"{name}: {s.elements} elements sent and {r.elements} received"
        raise fail("E473", message, help=f"{block * in_s} and {block * in_r} would fit")
    raise fail("E473", f"{name}: {whole.elements} elements are no {parts} blocks")
