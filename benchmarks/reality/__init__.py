"""benchmarks.reality: the model of NCCL and RCCL beside published measurements."""
