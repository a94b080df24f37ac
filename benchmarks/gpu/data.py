"""Data that is timed: inputs whose sums are rounded, and whether results are equal in every bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.cases import DTYPES
from benchmarks.gpu.measured_machine import MeasuredMachine
from hccc.ir.plan import Plan

UNWRITTEN = -1.0  # no sum of the inputs is negative


def of_dtype(dtype: str, values: Any) -> Any:
    """Returns float32 values as an array of `dtype`.

    bfloat16 is an array of its bits, cut off.
    """
    return values if dtype == "float32" else (values.view(np.uint32) >> 16).astype(np.uint16)


def memory(
    machine: MeasuredMachine, plan: Plan, count: int, dtype: str, sets: int
) -> list[list[Any]]:
    """Allocates inputs of all ranks, whose sums are rounded, and `sets` sets of outputs,
    unwritten."""
    xp, c = machine.numpy, plan.collective
    inputs: list[Any] = []
    outputs: list[list[Any]] = [[] for _ in range(sets)]
    for rank in range(c.n_ranks):
        values = xp.arange(c.input_blocks(rank) * count, dtype="float32")
        values += 1 + rank
        xp.sqrt(values, out=values)
        inputs.append(of_dtype(dtype, values))
        for made in outputs:
            blank = xp.zeros(c.output_blocks(rank) * count, "float32")
            blank.fill(UNWRITTEN)
            made.append(of_dtype(dtype, blank))
    return [inputs, *outputs]


def counted(
    machine: MeasuredMachine, n_ranks: int, count: int, dtype: str
) -> tuple[list[Any], list[Any], Any]:
    """Allocates inputs of all ranks whose sum no order rounds, outputs, unwritten, and makes the
    sum."""
    xp = machine.numpy
    whole = xp.arange(count, dtype="float32") % 8
    inputs = [of_dtype(dtype, whole + rank) for rank in range(n_ranks)]
    outputs = [of_dtype(dtype, xp.full(count, UNWRITTEN, "float32")) for _ in range(n_ranks)]
    return inputs, outputs, of_dtype(dtype, n_ranks * whole + n_ranks * (n_ranks - 1) // 2)


def same(machine: MeasuredMachine, dtype: str, one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Returns whether two sets of outputs are equal in every bit, and were written at all."""
    bits = np.dtype(f"u{DTYPES[dtype]}")
    unwritten = np.array([UNWRITTEN], np.float32).view(np.uint32)[0] >> (32 - 8 * bits.itemsize)
    pairs = [(a.view(bits), b.view(bits)) for a, b in zip(one, other, strict=True)]
    equal = machine.numpy.array_equal
    return all(bool(equal(a, b)) and not bool((a == int(unwritten)).any()) for a, b in pairs)
