"""cpu: launches a generated collective on the host: all ranks in this process, over NumPy
arrays."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import InternalError, fail
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import Collective
from hccc.runtime.abi import (
    CallRecord,
    CommRecord,
    FaultRecord,
    LocalRecord,
    RankRecord,
    all_memory,
)
from hccc.runtime.build import Variant, build_all, build_library, build_several
from hccc.runtime.fault import LaunchError, LaunchFault, WaitKind
from hccc.runtime.layout import FLAG_STRIDE, LayoutShape
from hccc.runtime.network import Proxy, RankNetwork
from hccc.runtime.picks import picks_of
from hccc.runtime.recording import LaunchRecording, recording
from hccc.runtime.request import (
    INT,
    LaunchRequest,
    check_aliases,
    check_buffers,
    check_shape,
    check_size,
)

OK, TIMEOUT, BAD_ARGUMENT, NO_MEMORY = range(4)


# Bytes of all ranks' blocks up to which one core runs a launch: hccc_small_launch of the header.
SMALL_LAUNCH = 4 << 20


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """Allocates zeroed bytes that begin on a flag boundary; pages are touched only when used."""
    memory = np.zeros(size + FLAG_STRIDE, np.uint8)
    start = -memory.ctypes.data % FLAG_STRIDE
    return memory[start : start + size]


class CpuLauncher:
    """All ranks of one generated collective, with their scratch memory and flags.

    `source` is the generated `<name>_cpu.cpp`; its functions are `<name>_cpu_<dtype>_<op>`. Scratch
    and flags are allocated once and stay between launches. network: between memory domains; each
    domain is launched by itself, as by a process of its own, and a proxy carries transfers between
    them. None: every rank addresses every other's memory. Not for concurrent launches.
    """

    def __init__(
        self,
        source: Path,
        name: str,
        shape: LayoutShape,
        collective: Collective,
        *,
        include: Sequence[Path] = (),
        network: RankNetwork | None = None,
    ) -> None:
        check_shape(shape)
        self.source = source
        self.name = name
        self.shape = shape
        self.collective = collective
        self._include = tuple(include)
        self._functions: dict[Variant, Any] = {}
        self.flags = [aligned_zeros(self.flag_bytes) for _ in range(shape.ranks)]
        self._scratch = [aligned_zeros(0) for _ in range(shape.ranks)]
        self._fault = FaultRecord()
        self._window = all_memory()
        self._hosts = network.hosts() if network else [(0, shape.ranks)]
        self._domain = network.domain if network else (0,) * shape.ranks
        self._tables = self._make_tables()
        self._proxy = Proxy(network, self._tables[-1]) if network else None

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags."""
        return self.shape.flag_bytes

    def shape_of(self, request: LaunchRequest) -> LayoutShape:
        """Returns the shape of a launch's plan."""
        return self.shape

    def build(self, requests: Sequence[LaunchRequest]) -> None:
        """Compiles the libraries of several launches at once."""
        self._build(sorted({r.variant(self.collective) for r in requests}, key=repr))

    def _build(self, variants: Sequence[Variant]) -> None:
        build_all(self.source, variants, include=self._include)

    def _library(self, variant: Variant) -> Path:
        return build_library(self.source, variant, include=self._include)

    def launch(
        self,
        inputs: Sequence[NDArray[Any] | None],
        outputs: Sequence[NDArray[Any] | None],
        request: LaunchRequest,
    ) -> float:
        """Runs the collective and returns its seconds, without checks and the first build.

        `inputs[r]`, `outputs[r]`: rank r's buffers, None where the collective has none there.
        Raises UserError E41x (build), E422 and E423 (buffers), E454 (too large), E455 (no room
        for its thread blocks), LaunchError E420 (deadline, now or in an earlier launch: `reset`).
        """
        check_size(self.shape_of(request), request)
        check_buffers(self.collective, request, inputs, outputs)
        send, receive = _addresses(inputs), _addresses(outputs)
        check_aliases(self.collective, request, send, receive)
        function = self._function(request.variant(self.collective))
        self._reserve(request)
        status, elapsed = self._run(function, send, receive, request)
        if status != OK:
            self._raise(status, request)
        return elapsed

    def record(
        self,
        inputs: Sequence[NDArray[Any] | None],
        outputs: Sequence[NDArray[Any] | None],
        request: LaunchRequest,
        slots: int,
    ) -> LaunchRecording:
        """Runs the collective once and returns the kernels' records. slots: of a thread block.

        Raises UserError E459 unless the request asks for kernels that record; and as `launch`.
        """
        library = self._library(request.variant(self.collective))
        shape = self.shape_of(request)
        ranks = range(shape.ranks)
        with recording(library, ranks, shape.blocks * shape.channels, slots) as recorder:
            self.launch(inputs, outputs, request)
        return recorder.read()

    def reset(self) -> None:
        """Clears a fault: counters of all ranks begin at zero again. No launch may be running."""
        for flags in self.flags:
            flags[:] = 0
        if self._proxy:
            self._proxy.reset()
        ctypes.memset(ctypes.addressof(self._fault), 0, ctypes.sizeof(self._fault))

    def _function(self, variant: Variant) -> Any:
        if variant not in self._functions:
            path = self._library(variant)
            symbol = f"{self.name}_cpu_{variant.name}"
            self._functions[variant] = _load(path, symbol)
        return self._functions[variant]

    def _make_tables(self) -> list[ctypes.Array[RankRecord]]:
        """Makes the table of ranks of each host, and then this process's, which has every rank."""
        tables = []
        n, window = self.shape.ranks, ctypes.addressof(self._window)
        for seen_by in [*(self._domain[first] for first, _ in self._hosts), None]:
            rows = []
            for rank in range(n):
                near = seen_by is None or self._domain[rank] == seen_by
                flags = self.flags[rank].ctypes.data if near else None
                scratch = self._scratch[rank].ctypes.data if near else None
                rows.append(RankRecord(flags, scratch, window, 1, 0))
            tables.append((RankRecord * n)(*rows))
        return tables

    def _reserve(self, request: LaunchRequest) -> None:
        """Allocates scratch for a launch; the tables stay where they are, since the proxy reads
        one."""
        shape = self.shape_of(request)
        need = shape.scratch_bytes(request.count, request.itemsize, request.micro_batch)
        if self._scratch[0].nbytes >= need:
            return
        self._scratch = [aligned_zeros(need) for _ in range(self.shape.ranks)]
        for old, new in zip(self._tables, self._make_tables(), strict=True):
            ctypes.memmove(old, new, ctypes.sizeof(old))

    def _run(
        self, function: Any, send: Sequence[int], receive: Sequence[int], request: LaunchRequest
    ) -> tuple[int, float]:
        """Launches all hosts; returns their first bad status, and seconds."""
        rings = [self._proxy.ring(r) if self._proxy else None for r in range(self.shape.ranks)]
        scalars = request.scalars or [0] * self.shape.ranks
        local = (LocalRecord * self.shape.ranks)(*map(LocalRecord, send, receive, rings, scalars))
        calls = []
        for (first, last), table in zip(self._hosts, self._tables[:-1], strict=True):
            comm = CommRecord.of(
                self.shape.ranks, ctypes.addressof(table), ctypes.addressof(self._fault)
            )
            calls.append((comm, _call_of(request, local, first, last, len(self._hosts))))
        words = None if request.blocks is None else request.blocks.words()
        for _, call in calls:
            call.blocks = None if words is None else words.ctypes.data
        started = time.perf_counter()
        if self._proxy is None:
            return self._each(function, calls), time.perf_counter() - started
        with self._proxy.running():
            status = self._each(function, calls)
        return status, time.perf_counter() - started

    def _each(self, function: Any, calls: Sequence[tuple[CommRecord, CallRecord]]) -> int:
        """Launches all hosts at once and returns the worst status. A host that cannot start makes
        the others leave."""
        found = [OK] * len(calls)

        def one(i: int) -> None:
            comm, call = calls[i]
            found[i] = function(ctypes.byref(comm), ctypes.byref(call))
            if found[i] not in (OK, TIMEOUT):
                self._fault.kind, self._fault.claimed = WaitKind.ABORTED, 1

        others = [threading.Thread(target=one, args=(i,)) for i in range(1, len(calls))]
        for thread in others:
            thread.start()
        one(0)
        for thread in others:
            thread.join()
        return max(found)

    def plan_of(self, request: LaunchRequest) -> str:
        """Returns the name of the plan of a launch."""
        return ""

    def _raise(self, status: int, request: LaunchRequest) -> None:
        if status == TIMEOUT:
            raise LaunchError(LaunchFault.of(self._fault), request.timeout, self.plan_of(request))
        self.reset()
        if status == NO_MEMORY:
            raise fail("E455", "no memory or threads for this many thread blocks")
        raise InternalError(f"{self.name}: launch returned status {status}")


class CpuCatalogueLauncher(CpuLauncher):
    """All ranks of a catalogue: the entry of its library picks the plan of every launch.

    `source` is the generated `<name>_cpu_dispatch.cpp`; flags are those of all plans, scratch the
    most of any launch yet. Otherwise as `CpuLauncher`.
    """

    def __init__(
        self,
        source: Path,
        catalogue: Catalogue,
        *,
        include: Sequence[Path] = (),
        network: RankNetwork | None = None,
    ) -> None:
        self._picks = picks_of(catalogue)
        for shape in self._picks.shapes:
            check_shape(shape)
        self._kernels = [source.parent / f"{plan.name}_cpu.cpp" for plan in catalogue.plans]
        first = self._picks.shapes[0]
        name, collective = catalogue.name, catalogue.collective
        super().__init__(source, name, first, collective, include=include, network=network)

    @property
    def flag_bytes(self) -> int:
        """Bytes of one rank's flags, those of all plans."""
        return self._picks.flag_bytes

    def shape_of(self, request: LaunchRequest) -> LayoutShape:
        """Returns the shape of a launch's plan."""
        return self._picks.shape_of(request)

    def plan_of(self, request: LaunchRequest) -> str:
        """Returns the name of the plan of a launch."""
        return self._picks.plan_of(request)

    def _build(self, variants: Sequence[Variant]) -> None:
        for variant in variants:
            self._library(variant)

    def _library(self, variant: Variant) -> Path:
        return build_several(self.source, self._kernels, [variant], include=self._include)


def _addresses(arrays: Sequence[NDArray[Any] | None]) -> list[int]:
    return [0 if a is None else a.ctypes.data for a in arrays]


def _call_of(
    request: LaunchRequest, local: ctypes.Array[LocalRecord], first: int, last: int, hosts: int
) -> CallRecord:
    """Makes the call that launches ranks [first, last), one of several hosts on this machine."""
    workers = min(request.workers, INT)
    if hosts > 1 and not workers:
        workers = max(1, len(os.sched_getaffinity(0)) // hosts)
    return CallRecord.of(
        count=request.count,
        micro_batch_bytes=request.micro_batch,
        timeout_s=request.timeout,
        join_timeout_s=request.join_timeout,
        deadline_s=request.deadline,
        in_place=request.in_place,
        window=min(request.window, INT),
        workers=workers,
        first_rank=first,
        n_local=last - first,
        local=ctypes.addressof(local) + first * ctypes.sizeof(LocalRecord),
    )


def _load(path: Path, symbol: str) -> Any:
    function = getattr(ctypes.CDLL(str(path)), symbol)
    function.restype = ctypes.c_int
    function.argtypes = [ctypes.POINTER(CommRecord), ctypes.POINTER(CallRecord)]
    return function
