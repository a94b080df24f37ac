"""hccc.torch: hccc as a backend of PyTorch's process groups."""

from hccc.runtime.job.standard import make_by
from hccc.runtime.torch import empty, load, use_allocator
from hccc.synth.builtin.hetccl import hetccl

__all__ = ["empty", "load", "use_allocator"]
make_by(hetccl)
