"""nccl: NCCL and RCCL as they are: what they choose, and how long that takes on machines."""
