"""Plan to MSCCL++ JSON."""
