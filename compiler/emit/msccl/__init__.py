"""Plan to MSCCL XML."""
