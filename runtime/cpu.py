"""Launching a generated collective on the host: all ranks in this process, over NumPy arrays."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.diagnostics import InternalError, fail
from hccc.ir.collective import Collective
from hccc.runtime.abi import Call, FaultRecord, Rank
from hccc.runtime.build import Variant, build_all, build_library
from hccc.runtime.fault import Fault, LaunchError
from hccc.runtime.layout import FLAG_STRIDE, Shape
from hccc.runtime.request import INT, Request, check_aliases, check_buffers, check_shape, check_size

OK, TIMEOUT, BAD_ARGUMENT, NO_MEMORY = range(4)


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """Zeroed bytes that begin on a flag boundary; pages are touched only when used."""
    memory = np.zeros(size + FLAG_STRIDE, np.uint8)
    start = -memory.ctypes.data % FLAG_STRIDE
    return memory[start : start + size]


class CpuCommunicator:
    """All ranks of one generated collective, with their scratch memory and flags.

    `source` is the generated `<name>_cpu.cpp`; its functions are `<name>_cpu_<dtype>_<op>`.
    Scratch and flags are allocated once and kept across launches. Not for concurrent launches.
    """

    def __init__(
        self,
        source: Path,
        name: str,
        shape: Shape,
        collective: Collective,
        *,
        include: Sequence[Path] = (),
    ) -> None:
        check_shape(shape)
        self.source = source
        self.name = name
        self.shape = shape
        self.collective = collective
        self._include = tuple(include)
        self._functions: dict[Variant, Any] = {}
        self.flags = [aligned_zeros(shape.flag_bytes) for _ in range(shape.ranks)]
        self._scratch = [aligned_zeros(0) for _ in range(shape.ranks)]

    def build(self, requests: Sequence[Request]) -> None:
        """Compiles what several launches will need, at once."""
        variants = sorted({r.variant(self.collective) for r in requests}, key=repr)
        build_all(self.source, variants, include=self._include)

    def launch(
        self,
        inputs: Sequence[NDArray[Any] | None],
        outputs: Sequence[NDArray[Any] | None],
        request: Request,
    ) -> float:
        """Runs the collective and returns its seconds, without checks and the first build.

        `inputs[r]`, `outputs[r]`: rank r's buffers, None where the collective has none there.
        Raises UserError E41x (build), E422 and E423 (buffers), E454 (too large), E455 (no room
        for its thread blocks), LaunchError E420 (deadline).
        """
        check_size(self.shape, request)
        check_buffers(self.collective, request, inputs, outputs)
        send, receive = _addresses(inputs), _addresses(outputs)
        check_aliases(self.collective, request, send, receive)
        function = self._function(request.variant(self.collective))
        table = self._table(send, receive, request)
        call = _call_of(request, self.shape.ranks)
        record = FaultRecord()
        started = time.perf_counter()
        status = function(table, ctypes.byref(call), ctypes.byref(record))
        elapsed = time.perf_counter() - started
        if status != OK:
            self._raise(status, record, request)
        return elapsed

    def _function(self, variant: Variant) -> Any:
        if variant not in self._functions:
            path = build_library(self.source, variant, include=self._include)
            symbol = f"{self.name}_cpu_{variant.dtype}_{variant.op}"
            self._functions[variant] = _load(path, symbol)
        return self._functions[variant]

    def _table(
        self, send: Sequence[int], receive: Sequence[int], request: Request
    ) -> ctypes.Array[Rank]:
        need = self.shape.scratch_bytes(request.count, request.itemsize, request.micro_batch)
        if self._scratch[0].nbytes < need:
            self._scratch = [aligned_zeros(need) for _ in range(self.shape.ranks)]
        scratch, flags = _addresses(self._scratch), _addresses(self.flags)
        rows = zip(send, receive, scratch, flags, strict=True)
        return (Rank * self.shape.ranks)(*[Rank(*row) for row in rows])

    def _raise(self, status: int, record: FaultRecord, request: Request) -> None:
        if status == TIMEOUT:
            # Counters are anywhere now: only a fresh start agrees with itself.
            for flags in self.flags:
                flags[:] = 0
            raise LaunchError(Fault.of(record), request.timeout)
        if status == NO_MEMORY:
            raise fail("E455", "no memory or threads for this many thread blocks")
        raise InternalError(f"{self.name}: launch returned status {status}")


def _addresses(arrays: Sequence[NDArray[Any] | None]) -> list[int]:
    return [0 if a is None else a.ctypes.data for a in arrays]


def _call_of(request: Request, n_ranks: int) -> Call:
    return Call(
        count=request.count,
        micro_batch_bytes=request.micro_batch,
        timeout_s=request.timeout,
        in_place=request.in_place,
        window=min(request.window, INT),
        workers=min(request.workers, INT),
        first_rank=0,
        n_local=n_ranks,
    )


def _load(path: Path, symbol: str) -> Any:
    function = getattr(ctypes.CDLL(str(path)), symbol)
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.POINTER(Rank), ctypes.POINTER(Call), ctypes.POINTER(FaultRecord)]
    return function
