"""hccc.torch: hccc as a backend of PyTorch's process groups."""

from hccc.runtime.torch import empty, load, use_allocator

__all__ = ["empty", "load", "use_allocator"]
