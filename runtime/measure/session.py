"""session: ranks' memory bound to a launcher, on the host or on a GPU, for `perf`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from hccc.runtime.measure.patterns import Array
from hccc.runtime.measure.perf import RankMemory
from hccc.runtime.recording import LaunchRecording
from hccc.runtime.request import LaunchRequest


class Launcher(Protocol):
    """The common interface of the CPU's and the GPU's launchers."""

    def launch(
        self, inputs: Sequence[Any | None], outputs: Sequence[Any | None], request: LaunchRequest
    ) -> float:
        """Runs the collective once and returns its seconds."""
        ...


@runtime_checkable
class Recorded(Protocol):
    """A launcher whose launches can be recorded."""

    def record(
        self,
        inputs: Sequence[Any | None],
        outputs: Sequence[Any | None],
        request: LaunchRequest,
        slots: int,
    ) -> LaunchRecording:
        """Runs the collective once and returns the kernels' records."""
        ...


def _buffers(slabs: Sequence[Any], memory: Sequence[RankMemory]) -> tuple[list[Any], list[Any]]:
    """Returns views of every rank's send and receive buffer; None where there is none."""
    sends: list[Any] = []
    receives: list[Any] = []
    for slab, m in zip(slabs, memory, strict=True):
        send = slab[m.send_at : m.send_at + m.send_length]
        receive = slab[m.receive_at : m.receive_at + m.receive_length]
        sends.append(send if m.sends else None)
        receives.append(receive if m.receives else None)
    return sends, receives


class HostSession:
    """The host's memory is the ranks' memory."""

    def __init__(
        self, communicator: Launcher, request: LaunchRequest, memory: Sequence[RankMemory]
    ) -> None:
        self._communicator, self._request = communicator, request
        self._buffers = _buffers([m.slab for m in memory], memory)

    def put(self) -> None:
        """Does nothing."""

    def get(self) -> None:
        """Does nothing."""

    def run(self, launches: int) -> float:
        """Launches one after the other and returns the seconds inside them."""
        launch, buffers = self._communicator.launch, self._buffers
        return sum(launch(*buffers, self._request) for _ in range(launches))

    def record(self, blocks: int, slots: int) -> LaunchRecording:
        """Launches once and returns the kernels' records."""
        assert isinstance(self._communicator, Recorded)
        return self._communicator.record(*self._buffers, self._request, slots)


class DeviceSession(HostSession):
    """A copy of the host's memory on a GPU. `cupy`: the module, of CUDA or ROCm."""

    def __init__(
        self,
        communicator: Launcher,
        request: LaunchRequest,
        memory: Sequence[RankMemory],
        cupy: Any,
    ) -> None:
        self._hosts = [_plain(m.slab) for m in memory]
        self._slabs = [cupy.empty(host.shape, host.dtype) for host in self._hosts]
        self._communicator, self._request = communicator, request
        self._buffers = _buffers(self._slabs, memory)

    def put(self) -> None:
        """Copies to the GPU."""
        for slab, host in zip(self._slabs, self._hosts, strict=True):
            slab.set(host)

    def get(self) -> None:
        """Copies back."""
        for slab, host in zip(self._slabs, self._hosts, strict=True):
            slab.get(out=host)


def _plain(slab: Array) -> Array:
    """Views dtypes of ml_dtypes as bits, since CuPy lacks them."""
    return slab if slab.dtype.isbuiltin == 1 else slab.view(f"u{slab.dtype.itemsize}")
