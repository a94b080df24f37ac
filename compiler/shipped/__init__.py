"""Clusters, algorithms, MSCCL XML and hardware figures that ship with hccc, found by name."""
