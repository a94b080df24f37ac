"""communicator: one rank of a communicator, for Python programs.

comm = Communicator.from_environment()              # of torchrun, mpirun, srun, or HCCC_RANK
comm.load(Path("kernels"), ["float32"])             # of one's own; without, standard ones are made
x = comm.empty(1 << 20, "float32")                  # memory that the other ranks reach
comm.all_reduce(x)
"""

from __future__ import annotations

import ctypes
import importlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.base.diagnostics import fail
from hccc.base.dtypes import ALIASES
from hccc.runtime.communicator.buffers import (
    TYPES,
    buffer_on,
    number_of_type,
)
from hccc.runtime.communicator.collectives import Collectives
from hccc.runtime.communicator.errors import CommunicatorError, Result, check
from hccc.runtime.communicator.groups import group
from hccc.runtime.communicator.messages import ANY, Received
from hccc.runtime.communicator.premul import PremulSum, word_of
from hccc.runtime.communicator.rank import Can, unique_id
from hccc.runtime.communicator.runtime_library import library
from hccc.runtime.communicator.uneven import UnevenCollectives
from hccc.runtime.device.stream import Stream
from hccc.runtime.layout import DTYPES

__all__ = [
    "Can",
    "Communicator",
    "CommunicatorError",
    "Received",
    "Result",
    "allocate",
    "group",
    "unique_id",
]

_Stream = Stream | int | None


class Communicator(UnevenCollectives, Collectives):
    """One rank of a communicator.

    Buffers are arrays of NumPy, PyTorch or others with DLPack or an array interface, in host
    memory, in C order; where memory is a GPU's (HCCC_PLATFORM), arrays of CuPy or PyTorch on the
    device. There calls are put into `stream`, the platform's own, or its default stream.

    On the host a call returns when this rank's part is done; with a `stream` (of the device layer's
    CPU platform) it is put into that. Buffers are kept until it is done. `error`, `check()` and
    every later call report errors of calls in streams.

    Calls raise CommunicatorError, and UserError E471 for other arrays, E473 for buffers of other
    lengths than the collective has.
    """

    def empty(self, shape: int | tuple[int, ...], dtype: str = "float32") -> Any:
        """Makes a zeroed array in memory that the other ranks reach: calls do not copy it.

        Where memory is a GPU's the array is CuPy's; raises UserError E456 without CuPy.
        """
        return allocate(shape, dtype) if self.platform == "cpu" else device_array(shape, dtype)

    def send(self, buffer: Any, peer: int, tag: int = 0, stream: _Stream = None) -> None:
        """Sends an array to another rank, whose receive has the same tag. Up to 2,048 bytes are
        sent before they are received; longer arrays wait for their receiver."""
        b = buffer_on(self.platform, "Send", "buffer", buffer)
        words = (b.pointer, b.elements, number_of_type("Send", b, None), peer, tag)
        self._launch("SendTagged", words, b, None, stream)

    def recv(
        self, buffer: Any, peer: int | None = None, tag: int | None = 0, stream: _Stream = None
    ) -> Received:
        """Receives at most an array of a rank, None: of any, with a tag, None: with any. Returns
        what came, which is known when the receive is done."""
        b = buffer_on(self.platform, "Recv", "buffer", buffer, writable=True)
        made = Received()
        source, wanted = (ANY if one is None else one for one in (peer, tag))
        number = number_of_type("Recv", None, b)
        words = (b.pointer, b.elements, number, source, wanted, made.address)
        self._launch("RecvTagged", words, None, b._replace(owner=(b.owner, made)), stream)
        return made

    def run(
        self,
        name: str,
        send: Any,
        receive: Any,
        count: int,
        op: str | PremulSum = "sum",
        stream: _Stream = None,
    ) -> None:
        """Runs the library of a name, with blocks of `count` elements."""
        s = None if send is None else buffer_on(self.platform, name, "send", send)
        r = (
            None
            if receive is None
            else buffer_on(self.platform, name, "receive", receive, writable=True)
        )
        type_ = number_of_type(name, s, r)
        words = (name.encode(), s and s.pointer, r and r.pointer, count, type_, word_of(op))
        self._launch("Run", words, s, r, stream)

    def prepared(
        self,
        name: str,
        send: int | None,
        receive: int | None,
        count: int,
        dtype: str,
        op: str | PremulSum,
    ) -> Callable[[], None]:
        """Returns a function that runs a library or a job of a name over addresses, to be called
        many times; None: no buffer."""
        handle, function = self.handle, library().function("Run")
        number = self._prepared_op(op, dtype)
        words = (name.encode(), send, receive, count, TYPES.index(dtype), number)

        def launch() -> None:
            check(function(*words, handle, None))

        return launch


def allocate(shape: int | tuple[int, ...], dtype: str = "float32") -> NDArray[Any]:
    """Makes a zeroed array in memory of hcccMemAlloc, which lives as long as it and its views."""
    kind, pointer, bytes = _allocated(shape, dtype)
    memory = (ctypes.c_char * bytes).from_address(pointer.value or 0)
    weakref.finalize(memory, library().call, "MemFree", pointer)
    return np.ndarray(shape, kind, memoryview(memory))


def device_array(shape: int | tuple[int, ...], dtype: str = "float32") -> Any:
    """Makes a zeroed CuPy array in a GPU's memory of hcccMemAlloc. Raises UserError E456."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        message = f"CuPy cannot be imported ({error}), which arrays of a GPU are of"
        raise fail("E456", message, help="pip install 'hccc[cuda]', or pass PyTorch's") from error
    kind, pointer, bytes = _allocated(shape, dtype)
    owner = _Owner()
    weakref.finalize(owner, library().call, "MemFree", pointer)
    memory = cupy.cuda.UnownedMemory(pointer.value or 0, bytes, owner)
    return cupy.ndarray(shape, kind, memptr=cupy.cuda.MemoryPointer(memory, 0))


class _Owner:
    """An object that lives as long as an array's memory."""


def _allocated(
    shape: int | tuple[int, ...], dtype: str
) -> tuple[np.dtype[Any], ctypes.c_void_p, int]:
    kind = DTYPES[ALIASES.get(dtype, dtype)]
    bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    pointer = ctypes.c_void_p()
    check(library().call("MemAlloc", ctypes.byref(pointer), bytes))
    return kind, pointer, bytes
