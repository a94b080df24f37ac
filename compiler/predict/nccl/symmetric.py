"""symmetric: NCCL with registered buffers: its symmetric kernels.

They are taken, since NCCL 2.27, where both buffers are windows (`ncclCommWindowRegister`): the GPUs
of one NVLink domain load and store each other's, with flags in the data (LL), plainly (LD, ST), or
by way of switches that multicast and reduce (LDMC, STMC: NVLS). NCCL takes the kernel of the least
time, 2.5 % more for each thread block, by a formula of its own (src/sym_kernels.cc: queryModel_lsa,
ncclSymkPickKernel). That formula is the time here, too, except that nothing is faster than links
are measured to be (`calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import Table, link_kind
from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine
from hccc.predict.nccl.tuning import (
    BLOCK_PENALTY,
    BLOCK_SLACK,
    LL_FACTOR,
    LLMC_GAIN,
    MULTICAST,
    SYMMETRIC,
    SYMMETRIC_BLOCKS,
    SYMMETRIC_CELL,
    SYMMETRIC_MOST,
    SymmetricKernel,
)

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
GB = 1000.0  # bytes in a µs of one GB/s
GIB = (1 << 30) / 1e6  # bytes in a µs of one GiB/s
K = SymmetricKernel
KERNELS: dict[OpType, tuple[SymmetricKernel, ...]] = {
    OpType.ALLREDUCE: (K.AG_LL_R, K.AG_LLMC_R, K.RS_LD_AG_ST, K.RS_LDMC_AG_STMC),
    OpType.ALLGATHER: (K.LL, K.LLMC, K.ST, K.STMC),
    OpType.REDUCESCATTER: (K.LL, K.LD, K.LDMC),
}


@dataclass(frozen=True, slots=True, eq=False)
class SymmetricChoice:
    """For each size: µs, kernel (a row of `kernels`), thread blocks; f8[s], i8[s], i8[s]."""

    time: F8
    kernels: tuple[SymmetricKernel, ...]
    kernel: I8
    blocks: I8


def refusal(m: NcclMachine, op: OpType, size: int) -> str | None:
    """Returns why a call has no symmetric kernel that is modelled; None if it has one."""
    if m.generation.amd:
        return "symmetric kernels of RCCL are not modelled"
    if op not in KERNELS:
        return f"NCCL has no symmetric kernel for {op.value}"
    if m.nodes > 1 and op is OpType.ALLREDUCE:
        return "NCCL's symmetric kernels for Allreduce stay within one NVLink domain"
    if m.nodes > 1:
        return "NCCL's symmetric kernels between NVLink domains are not modelled"
    if m.link is NcclLink.PCIE or not m.direct:
        return "symmetric kernels need NVLink from each GPU to all others"
    if size >= SYMMETRIC_MOST:
        return "NCCL has no symmetric kernel for 64 GiB and more"
    return None


def symmetric(m: NcclMachine, op: OpType, sizes: F8, table: Table) -> SymmetricChoice:
    """Returns NCCL's choice for calls that `refusal` does not refuse. sizes: as nccl-tests counts
    them, in bytes: f8[s]."""
    kernels = tuple(k for k in KERNELS[op] if m.nvls or not k.multicast)
    parts = sizes if op is OpType.ALLREDUCE else sizes / m.ranks
    parts = np.ceil(parts / SYMMETRIC_CELL) * SYMMETRIC_CELL
    found = [_estimate(m, op, kernel, parts) for kernel in kernels]
    blocks = np.stack([b for _, b in found])
    weighed = np.stack([time * (1 + BLOCK_PENALTY * b) for time, b in found])
    kernel: I8 = weighed.argmin(axis=0).astype(np.int64)
    own = [
        np.maximum(t, _least(m, op, k, parts, table))
        for k, (t, _) in zip(kernels, found, strict=True)
    ]
    at = np.arange(len(sizes))
    time: F8 = np.maximum(np.stack(own)[kernel, at], m.floor)
    return SymmetricChoice(time, kernels, kernel, blocks[kernel, at])


def _estimate(m: NcclMachine, op: OpType, kernel: SymmetricKernel, parts: F8) -> tuple[F8, I8]:
    """Returns NCCL's µs for calls of `parts` bytes a rank, and the thread blocks: the fewest that
    take little longer than the most."""
    c, n = _figures(m), m.ranks
    most = SYMMETRIC_BLOCKS
    if kernel.multicast and not kernel.flagged:
        most = -(-int(c["nvls_blocks"]) // n)
    reduces = op is OpType.ALLREDUCE
    block = c["block_allreduce" if reduces else "block"]
    peak = c["peak_nvls_allreduce" if kernel is K.RS_LDMC_AG_STMC else "peak"]
    offered = np.arange(1, most + 1) * block * _multiple(n, kernel)
    rate = peak - block * np.log1p(np.expm1(peak / block) * np.exp(-offered / block))
    moving = _bus_bytes(n, kernel, op, parts) / (rate[:, None] * GIB)
    times = _base(m, op, kernel) + np.logaddexp(0, moving - 1)
    fewest = (times <= BLOCK_SLACK * times[-1]).argmax(axis=0)
    return times[fewest, np.arange(len(parts))], fewest + 1


def _least(m: NcclMachine, op: OpType, kernel: SymmetricKernel, parts: F8, table: Table) -> F8:
    """Returns the µs of a call at the measured rates of its links."""
    if kernel.flagged:  # NCCL's factor of LL is more than the links'
        return np.zeros(len(parts))
    if kernel is K.RS_LDMC_AG_STMC:
        share = table["nvls"][f"share_{m.generation}"] / (1 + 1 / m.ranks)
        moving = parts / (m.wire * share * GB)
    else:
        delivered = m.wire * table["link"][link_kind(m)] * GB
        moving = _bus_bytes(m.ranks, kernel, op, parts) / delivered
    return _base(m, op, kernel) + moving


def _base(m: NcclMachine, op: OpType, kernel: SymmetricKernel) -> float:
    c = _figures(m)
    if kernel.flagged:
        return c["base_ll_allgather" if op is OpType.ALLGATHER else "base_ll"]
    return c["base_allreduce" if op is OpType.ALLREDUCE else "base"]


def _bus_bytes(n: int, kernel: SymmetricKernel, op: OpType, parts: F8) -> F8:
    """Returns the bytes that NCCL counts of a GPU's links."""
    if kernel.flagged:
        return n * parts * LL_FACTOR
    if kernel is K.RS_LDMC_AG_STMC:
        return parts / n + parts
    return parts * (n - 1) * (2 / n if op is OpType.ALLREDUCE else 1)


def _multiple(n: int, kernel: SymmetricKernel) -> float:
    """Returns how many bytes of the links one byte of a thread block is worth."""
    if kernel.flagged:
        return LLMC_GAIN if kernel.multicast else 1
    if kernel is K.RS_LDMC_AG_STMC:
        return n
    return MULTICAST * n if kernel.multicast else 1


def _figures(m: NcclMachine) -> Mapping[str, float]:
    return SYMMETRIC["Blackwell" if m.generation is Generation.BLACKWELL else "older"]
