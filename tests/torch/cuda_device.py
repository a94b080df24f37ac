"""Functions of CUDA's devices under the names of the stand-in's: what holds their streams."""

from __future__ import annotations

from typing import Any

from hccc.runtime.torch.installed import torch

HELD_CYCLES = 1_000_000_000  # half a second of a GPU


def hold() -> None:
    """Has the current stream wait for half a second."""
    torch.cuda._sleep(HELD_CYCLES)


def release() -> None:
    """Waits until the current stream is held no longer."""
    torch.cuda.current_stream().synchronize()


def idle() -> bool:
    """Tells whether the current stream has done all."""
    return bool(torch.cuda.current_stream().query())


def fill(tensor: Any, value: float) -> None:
    """Fills a tensor in the current stream."""
    tensor.fill_(value)


def synchronize() -> None:
    """Waits for the device."""
    torch.cuda.synchronize()
