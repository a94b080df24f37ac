"""NCCL's algorithms as Programs for a Topology."""
