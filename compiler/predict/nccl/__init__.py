"""NCCL and RCCL as they are: their choices, and the times of those on machines."""
