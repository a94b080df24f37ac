"""buffers: checks of a call's arrays before the runtime library gets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hccc.base.diagnostics import fail
from hccc.runtime.device.arrays import ArrayBuffer, buffer_of

# hcccDataType_t and hcccRedOp_t, in order.
TYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
)
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
Lengths = Callable[[int, int], tuple[int, int]]


def reduction_of(op: str) -> int:
    """Returns the number of a reduction. Raises UserError E411."""
    if op not in REDUCTIONS:
        raise fail("E411", f"unknown reduction `{op}`", help=f"one of: {', '.join(REDUCTIONS)}")
    return REDUCTIONS.index(op)


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


def check_alike(name: str, given: Sequence[ArrayBuffer]) -> str:
    """Returns the dtype that all buffers have. Raises UserError E473 where they differ."""
    if not given:
        raise fail("E473", f"{name}: neither a send nor a receive buffer")
    if len({one.dtype for one in given}) > 1:
        raise fail("E473", f"{name}: send is {given[0].dtype}, receive {given[1].dtype}")
    return given[0].dtype


def check_lengths(
    name: str, s: ArrayBuffer | None, r: ArrayBuffer | None, lengths: Lengths
) -> None:
    """Compares the lengths of both buffers with those that the collective needs for them. Raises
    UserError E473."""
    if s and r:
        wanted = lengths(s.count, r.count)
        if (s.count, r.count) != wanted:
            message = f"{name}: {s.count} elements sent and {r.count} received"
            raise fail("E473", message, help=f"{wanted[0]} and {wanted[1]} would fit")
