"""abi: the structures of `include/hccc/hccc.h`, `network.h`, `layout.h`, `library.h` and `trace.h`,
for ctypes."""

from __future__ import annotations

import ctypes

ABI = 12  # HCCC_ABI


class WindowRecord(ctypes.Structure):
    """hccc_window: memory of a rank that its peers may touch."""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_longlong))


def all_memory() -> WindowRecord:
    """Returns HCCC_ALL_MEMORY, the window of ranks of one process."""
    return WindowRecord(None, (1 << 63) - 1)


class RankRecord(ctypes.Structure):
    """hccc_rank: the memory of one rank, as far as the caller reaches it."""

    _fields_ = (
        ("flags", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("windows", ctypes.c_void_p),
        ("n_windows", ctypes.c_int),
        ("multicast", ctypes.c_int),
    )


class CommRecord(ctypes.Structure):
    """hccc_comm: the state that goes on from launch to launch."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("abi", ctypes.c_uint),
        ("rank_size", ctypes.c_uint),
        ("n_ranks", ctypes.c_int),
        ("ranks", ctypes.c_void_p),
        ("fault", ctypes.c_void_p),
        ("flags_at", ctypes.c_longlong),
    )

    @classmethod
    def of(cls, n_ranks: int, ranks: int, fault: int, flags_at: int = 0) -> CommRecord:
        """Makes HCCC_COMM_INIT with the addresses of the tables."""
        return cls(
            ctypes.sizeof(cls), ABI, ctypes.sizeof(RankRecord), n_ranks, ranks, fault, flags_at
        )


class TransferRecord(ctypes.Structure):
    """hccc_transfer: a put, and the counter that is then raised."""

    _fields_ = (
        ("turn", ctypes.c_uint),
        ("peer", ctypes.c_int),
        ("source_window", ctypes.c_int),
        ("target_window", ctypes.c_int),
        ("source", ctypes.c_longlong),
        ("target", ctypes.c_longlong),
        ("bytes", ctypes.c_longlong),
        ("counter", ctypes.c_longlong),
        ("value", ctypes.c_uint),
        ("tb", ctypes.c_int),
        ("channel", ctypes.c_int),
        ("reserved", ctypes.c_uint * 1),
    )


class ProxyRingRecord(ctypes.Structure):
    """hccc_proxy_ring: the transfers that a rank submits to its proxy, and their counters."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("transfer_size", ctypes.c_uint),
        ("length", ctypes.c_uint),
        ("reserved", ctypes.c_uint),
        ("entries", ctypes.c_void_p),
        ("submitted", ctypes.c_void_p),
        ("taken", ctypes.c_void_p),
        ("completed", ctypes.c_void_p),
    )


class LocalRecord(ctypes.Structure):
    """hccc_local: one rank launched here."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("proxy_ring", ctypes.c_void_p),
        ("scalar", ctypes.c_ulonglong),
        ("scalar_at", ctypes.c_void_p),
    )


class CallRecord(ctypes.Structure):
    """hccc_call: one launch."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("local_size", ctypes.c_uint),
        ("count", ctypes.c_longlong),
        ("micro_batch_bytes", ctypes.c_longlong),
        ("timeout_s", ctypes.c_double),
        ("join_timeout_s", ctypes.c_double),
        ("deadline_s", ctypes.c_double),
        ("in_place", ctypes.c_int),
        ("window", ctypes.c_int),
        ("workers", ctypes.c_int),
        ("first_rank", ctypes.c_int),
        ("n_local", ctypes.c_int),
        ("oversubscribed", ctypes.c_int),
        ("local", ctypes.c_void_p),
        ("signature", ctypes.c_ulonglong),
        ("blocks", ctypes.c_void_p),
        ("again", ctypes.c_void_p),
    )

    @classmethod
    def of(cls, **fields: float) -> CallRecord:
        """Makes HCCC_CALL_INIT with other values of some fields."""
        return cls(size=ctypes.sizeof(cls), local_size=ctypes.sizeof(LocalRecord), **fields)


class FaultRecord(ctypes.Structure):
    """hccc_fault: the first wait that passed its deadline."""

    _fields_ = (
        ("claimed", ctypes.c_uint),
        ("rank", ctypes.c_int),
        ("thread_block", ctypes.c_int),
        ("channel", ctypes.c_int),
        ("primitive", ctypes.c_int),
        ("micro_batch", ctypes.c_uint),
        ("flag", ctypes.c_int),
        ("want", ctypes.c_uint),
        ("have", ctypes.c_uint),
        ("kind", ctypes.c_int),
    )


class Params(ctypes.Structure):
    """hccc_params: the argument of a GPU kernel."""

    _fields_ = (
        ("ranks", ctypes.c_void_p),
        ("local", ctypes.c_void_p),
        ("one", LocalRecord),
        ("fault", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("flags_at", ctypes.c_longlong),
        ("count", ctypes.c_longlong),
        ("part", ctypes.c_longlong),
        ("timeout", ctypes.c_ulonglong),
        ("join_timeout", ctypes.c_ulonglong),
        ("deadline", ctypes.c_ulonglong),
        ("period", ctypes.c_ulonglong),
        ("micro", ctypes.c_uint),
        ("batches", ctypes.c_uint),
        ("window", ctypes.c_uint),
        ("first_rank", ctypes.c_int),
        ("in_place", ctypes.c_int),
        ("signature", ctypes.c_ulonglong),
    )


class TraceRecord(ctypes.Structure):
    """hccc_record: when one micro-batch of one primitive was executed."""

    _fields_ = (
        ("begin", ctypes.c_ulonglong),
        ("ready", ctypes.c_ulonglong),
        ("end", ctypes.c_ulonglong),
        ("primitive", ctypes.c_uint),
        ("micro_batch", ctypes.c_uint),
    )


class Trace(ctypes.Structure):
    """hccc_trace: the memory for records."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("record_size", ctypes.c_uint),
        ("slots", ctypes.c_uint),
        ("first_rank", ctypes.c_int),
        ("n_ranks", ctypes.c_int),
        ("blocks", ctypes.c_int),
        ("written", ctypes.c_void_p),
        ("records", ctypes.c_void_p),
    )


class TracedParams(ctypes.Structure):
    """hccc_params of kernels that were built with HCCC_TRACE."""

    _fields_ = (*Params._fields_, ("trace", Trace))


class LibraryRecord(ctypes.Structure):
    """hccc_library: the description that a library of kernels exports."""

    _fields_ = (
        ("size", ctypes.c_uint),
        ("abi", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("compiler", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("collective", ctypes.c_char_p),
        ("own_ops", ctypes.c_char_p),
        ("n_ranks", ctypes.c_int),
        ("root", ctypes.c_int),
        ("reduces", ctypes.c_int),
        ("touches_peers", ctypes.c_int),
        ("digest", ctypes.c_ulonglong),
        ("domain", ctypes.POINTER(ctypes.c_int)),
        ("catalogue", ctypes.c_void_p),
        ("input_blocks", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
        ("output_blocks", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)),
        ("launch", ctypes.c_void_p),
    )


def described(library: ctypes.CDLL) -> LibraryRecord:
    """Returns the description of a loaded library. Raises AttributeError where it is none of
    hccc's."""
    say = library.hccc_this_library
    say.restype = ctypes.POINTER(LibraryRecord)
    found: LibraryRecord = say().contents
    return found
