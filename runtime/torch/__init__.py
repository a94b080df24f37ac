"""hccc as a backend of PyTorch's process groups, for tensors in memory of the host and of GPUs.

    import torch.distributed as dist
    import hccc.torch

    dist.init_process_group("hccc")

A backend of C++ (`c10d.cpp` and the files that it includes) makes PyTorch's collectives as calls of
a communicator; `extension` builds it against the installed PyTorch. `meeting` has the ranks meet
through PyTorch's store, `kernels` finds libraries of one's own. Where there is no compiler,
`fallback` is the backend in Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from hccc.base.diagnostics import UserError
from hccc.ir.job import Job
from hccc.runtime.communicator import Communicator
from hccc.runtime.communicator.communicator import allocate
from hccc.runtime.job.loaded import MicroBatches
from hccc.runtime.torch import jobs, kernels, meeting
from hccc.runtime.torch.extension import extension
from hccc.runtime.torch.installed import torch

__all__ = ["empty", "load", "use_allocator"]


def load(
    place: Path | str | Job,
    group: Any = None,
    *,
    vendor: str | None = None,
    file: Path | str | None = None,
    micro_batches: MicroBatches = (),
) -> None:
    """Has process groups run kernels of one's own: a directory that `hccc` emitted, or all such
    directories in one. They are built for the types and reductions of calls when these are first
    made. Or a job over several vendors, which goes before all kernels: of `hccc.load_job`, or the
    table that `hccc compile job.rccl -o FILE` writes.

    All ranks load the same, between the same calls; what is loaded later goes before. group: the
    process group; without one, all that there are and will be. vendor, file, micro_batches: of a
    job, as of `Communicator.load`. HCCC_LIBRARIES names directories and tables, between colons, for
    all groups of a program.

    Raises UserError E473 where the place has no kernels, E407 or E208 for a file that is no table.
    """
    name = None if group is None else group.group_name
    if isinstance(place, Job):
        jobs.add(jobs.AddedJob(place, name, vendor, file, micro_batches))
    elif Path(place).is_file():
        jobs.add(jobs.of_table(Path(place), name, vendor, file, micro_batches))
    else:
        kernels.add(Path(place), name)
    made = _extension()
    if made is not None:
        made.look_again()


def empty(*shape: int | Sequence[int], dtype: Any = None, device: Any = "cpu") -> Any:
    """Makes a zeroed tensor in memory that the other ranks reach: collectives do not copy it.

    shape: lengths, or one sequence of them, as `torch.empty` takes. device: the CPU or a GPU.
    Raises UserError E412 to E414 for a GPU without the backend of C++.
    """
    type_ = torch.get_default_dtype() if dtype is None else dtype
    sizes = torch.Size(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
    place, bytes_ = torch.device(device), prod(sizes) * type_.itemsize
    made = _extension() if place.type == "cpu" else extension()
    if made is None:
        memory = torch.from_numpy(allocate(bytes_, "uint8"))
    else:
        memory = made.registered_bytes(bytes_, str(place)).zero_()
    return memory.view(type_).view(sizes)


def use_allocator(least: int = 1 << 16) -> None:
    """Makes the memory of every tensor of the CPU that has at least so many bytes such that the
    other ranks reach it, from now on; 0: of none, and what is kept for tensors to come is freed.

    A child of fork() shares it, so that what one of them writes the other sees. Raises UserError
    E412 to E414 without the backend of C++.
    """
    extension().use_allocator(least)


def _create(options: Any, _: Any) -> Any:
    """Makes the backend of a group: of C++, or, where that cannot be compiled, of Python. Raises
    DistBackendError."""
    store, rank, size = options.store.clone(), options.group_rank, options.group_size
    given = options.timeout
    limit = given if isinstance(given, timedelta) else timedelta(seconds=given)
    try:
        made = _extension()
        id_ = meeting.met(store, rank, limit) if size > 1 else b""
        if made is None:
            from hccc.runtime.torch.fallback import PythonGroup

            comm = Communicator.join(id_, size, rank) if size > 1 else None
            backend: Any = PythonGroup(comm, rank, size, options.group_id, limit)
        else:
            finder = kernels.Finder(options.group_id, size)
            backend = made.backend(store, rank, size, limit.total_seconds(), id_, finder)
    except UserError as error:
        raise torch.distributed.DistBackendError(f"hccc: {error}") from error
    if size > 1:
        meeting.forget(store, rank)
    return backend


def _extension() -> Any:
    """Returns the extension, or None where there is no compiler, or PyTorch's or Python's headers
    are not as it expects them."""
    try:
        return extension()
    except UserError as error:
        if error.problem.code not in ("E412", "E414"):
            raise
        _warn(str(error))
        return None


@cache
def _warn(reason: str) -> None:
    warnings.warn(f"hccc.torch: calls go through Python, which is slower: {reason}", stacklevel=2)


torch.distributed.Backend.register_backend(
    "hccc", _create, extended_api=True, devices=["cpu", "cuda"]
)
