"""request: a launch as requested, and the checks that need no device: shapes, dtypes, aliases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hccc.base.diagnostics import fail
from hccc.base.dtypes import STAND_IN
from hccc.ir.collective import Collective, OpType
from hccc.ir.kernel_shape import KernelShape
from hccc.ir.plan import MOST_BLOCKS
from hccc.ir.uneven import BlockTable
from hccc.runtime.build import Variant
from hccc.runtime.layout import DTYPES, LayoutShape, buffer_elements

DEFAULT_TIMEOUT_S = 30.0
FOR_EVER = 1 << 62  # ticks
INT = (1 << 31) - 1


def ticks_of(seconds: float, per_second: int) -> int:
    """Converts a deadline to ticks of a device's clock, as `hccc_ticks`: 0 is for ever."""
    ticks = seconds * per_second
    return max(1, int(ticks)) if 0 < ticks < FOR_EVER else FOR_EVER


def deadlines_of(request: LaunchRequest, shape: KernelShape, per_second: int) -> dict[str, int]:
    """Returns the fields of hccc_params that bound waits, in ticks, as `hccc_params_of` for a
    launch of all ranks."""
    deadline = ticks_of(request.deadline, per_second)
    timeout = min(ticks_of(request.timeout, per_second), deadline)
    join_timeout = min(ticks_of(request.join_timeout, per_second), deadline)
    join_timeout = timeout if shape.packets else join_timeout
    bounded = min(timeout, deadline) < FOR_EVER
    period = min(timeout // (4 * shape.ranks), deadline // 64) + 1 if bounded else FOR_EVER
    return {
        "timeout": timeout,
        "join_timeout": join_timeout,
        "deadline": deadline,
        "period": period,
    }


class Array(Protocol):
    """The attributes that NumPy's and CuPy's arrays have in common."""

    @property
    def dtype(self) -> Any:
        """The element type."""

    @property
    def size(self) -> int:
        """The number of elements."""
        ...

    @property
    def flags(self) -> Any:
        """c_contiguous and, for NumPy, writeable."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One launch: `count` elements a block, `micro_batch` in bytes (0: the default), `window` in
    micro-batches (0: all), `timeout` in seconds for one wait (0: for ever), `workers` CPU
    threads (0: auto), `join_timeout` in seconds for other ranks to start (0: for ever),
    `deadline` in seconds for the launch, all its waits together (0: none), `trace` whether
    its kernels can record, `blocks` of an uneven collective (None: all have `count`),
    `scalars` of premul_sum, the bits of each rank's."""

    count: int
    dtype: str
    op: str = "sum"
    in_place: bool = False
    micro_batch: int = 0
    window: int = 0
    timeout: float = DEFAULT_TIMEOUT_S
    workers: int = 0
    join_timeout: float = 0.0
    deadline: float = 0.0
    trace: bool = False
    blocks: BlockTable | None = None
    scalars: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        Variant(self.dtype, self.op)
        for name in ("count", "micro_batch", "window", "workers"):
            value = getattr(self, name)
            if value < 0:
                raise fail("E421", f"{name} must not be negative, got {value}")
            if value >= 1 << 62:
                raise fail("E421", f"{name} must be less than 2^62, got {value}")
        for name in ("timeout", "join_timeout", "deadline"):
            if not getattr(self, name) >= 0:
                message = f"{name} must not be negative, got {getattr(self, name)}"
                raise fail("E421", message)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype].itemsize

    def variant(self, collective: Collective) -> Variant:
        """Returns the build of this launch. Moving bytes needs one build per width only.

        A custom collective may reduce, by any name.
        """
        if collective.reduces or collective.op is OpType.CUSTOM:
            return Variant(self.dtype, self.op, self.trace)
        return Variant(STAND_IN[self.dtype], trace=self.trace)


def check_shape(shape: LayoutShape) -> None:
    """Raises UserError E454 for more thread blocks than one launch may have."""
    if shape.launch_blocks > MOST_BLOCKS:
        counts = f"{shape.ranks} ranks of {shape.blocks} thread blocks in {shape.channels} channels"
        raise fail(
            "E454",
            f"{counts} are {shape.launch_blocks:,}, more than the {MOST_BLOCKS:,} of a launch",
            help="use fewer channels or fewer thread blocks",
        )


def check_size(shape: LayoutShape, request: LaunchRequest) -> None:
    """Raises UserError E454 where a number of the launch does not fit where kernels keep it."""
    problem = shape.too_large(request.count, request.itemsize, request.micro_batch)
    if problem:
        raise fail("E454", problem, help="launch fewer elements, or with a larger micro-batch")


def _check_dtype(array: Array, request: LaunchRequest, what: str) -> None:
    wanted = DTYPES[request.dtype]
    bits = wanted.isbuiltin != 1 and array.dtype == np.dtype(f"u{wanted.itemsize}")
    if array.dtype != wanted and not bits:
        raise fail("E422", f"{what} is {array.dtype}, the launch is {request.dtype}")


def _check_buffer(array: Array | None, elements: int, request: LaunchRequest, what: str) -> None:
    if array is None:
        if elements:
            raise fail("E422", f"{what} is missing: it needs {elements} elements")
        return
    _check_dtype(array, request, what)
    if not array.flags.c_contiguous:
        raise fail("E422", f"{what} is not contiguous", help="pass a contiguous copy")
    if array.size < elements:
        raise fail("E422", f"{what} has {array.size} elements, the launch needs {elements}")


def check_buffers(
    collective: Collective,
    request: LaunchRequest,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
) -> None:
    """Raises UserError E422 unless every rank has the buffers that the launch reads and writes."""
    n = collective.n_ranks
    if len(inputs) != n or len(outputs) != n:
        raise fail("E422", f"{n} ranks: got {len(inputs)} inputs, {len(outputs)} outputs")
    if request.op == "premul_sum" and len(request.scalars) != n:
        message = f"premul_sum: {len(request.scalars)} scalars for {n} ranks"
        raise fail("E421", message, help="give the bits of one for each rank")
    if request.blocks is not None:
        _check_table(request.blocks, collective, request)
    for rank in range(n):
        send, receive = _elements(collective, rank, request)
        _check_buffer(inputs[rank], send, request, f"the input of rank {rank}")
        _check_buffer(outputs[rank], receive, request, f"the output of rank {rank}")
        output = outputs[rank]
        if receive and output is not None and not getattr(output.flags, "writeable", True):
            raise fail("E422", f"the output of rank {rank} is read-only")


def _check_table(table: BlockTable, collective: Collective, request: LaunchRequest) -> None:
    """Raises UserError E421 for a table of another collective, or with wrong lengths or places."""
    if not collective.uneven or table.collective != collective:
        message = f"the launch is of {collective.name}, its blocks of {table.collective.name}"
        raise fail("E421", message)
    table.check(request.count, request.in_place)


def _elements(collective: Collective, rank: int, request: LaunchRequest) -> tuple[int, int]:
    """Returns the elements of the send and the receive buffer of `rank`."""
    if request.blocks is None:
        return buffer_elements(collective, rank, request.count)
    return int(request.blocks.sizes[rank, 0]), int(request.blocks.sizes[rank, 1])


def check_aliases(
    collective: Collective, request: LaunchRequest, inputs: Sequence[int], outputs: Sequence[int]
) -> None:
    """Raises UserError E423 unless in-place buffers lie where NCCL puts them. Takes addresses."""
    if not request.in_place or not request.count:
        return
    block = request.count * request.itemsize
    for rank, (send, receive) in enumerate(zip(inputs, outputs, strict=True)):
        own = collective.alias_offset(rank) // collective.chunks_per_block
        offset = own * block
        if request.blocks is not None:
            places = request.blocks.places[rank]
            at = places[1, max(own, 0)] - places[0, max(-own, 0)]
            offset = int(at) * request.itemsize
        if send and receive and send != receive + offset:
            raise fail(
                "E423",
                f"in place, the input of rank {rank} must be its output at byte {offset}",
                help="pass views of one array, or in_place=False",
            )
