"""hccc.torch: hccc as a backend of PyTorch's process groups."""

from hccc.runtime.torch import empty, load

__all__ = ["empty", "load"]
