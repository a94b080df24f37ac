"""The structures of `include/hccc/hccc.h` and `layout.h`, for ctypes."""

from __future__ import annotations

import ctypes


class Rank(ctypes.Structure):
    """hccc_rank: where one rank's memory is."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("flags", ctypes.c_void_p),
    )


class Call(ctypes.Structure):
    """hccc_call: one launch."""

    _fields_ = (
        ("count", ctypes.c_longlong),
        ("micro_batch_bytes", ctypes.c_longlong),
        ("timeout_s", ctypes.c_double),
        ("in_place", ctypes.c_int),
        ("window", ctypes.c_int),
        ("workers", ctypes.c_int),
        ("first_rank", ctypes.c_int),
        ("n_local", ctypes.c_int),
    )


class FaultRecord(ctypes.Structure):
    """hccc_fault: the first wait that passed its deadline."""

    _fields_ = (
        ("claimed", ctypes.c_uint),
        ("rank", ctypes.c_int),
        ("thread_block", ctypes.c_int),
        ("lane", ctypes.c_int),
        ("primitive", ctypes.c_int),
        ("micro_batch", ctypes.c_uint),
        ("flag", ctypes.c_int),
        ("want", ctypes.c_uint),
        ("have", ctypes.c_uint),
        ("kind", ctypes.c_int),
    )


class Params(ctypes.Structure):
    """hccc_params: what a GPU kernel gets by value."""

    _fields_ = (
        ("ranks", ctypes.c_void_p),
        ("fault", ctypes.c_void_p),
        ("count", ctypes.c_longlong),
        ("part", ctypes.c_longlong),
        ("timeout", ctypes.c_ulonglong),
        ("micro", ctypes.c_uint),
        ("batches", ctypes.c_uint),
        ("window", ctypes.c_uint),
        ("first_rank", ctypes.c_int),
        ("in_place", ctypes.c_int),
    )
