"""What ships with hccc: clusters, algorithms and MSCCL XML, found by name."""
