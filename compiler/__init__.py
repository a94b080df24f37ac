"""hccc: the heterogeneous collective communication compiler."""

__version__ = "0.1.0"
