"""benchmarks: measurements of hccc, `python -m benchmarks.NAME` in the repository's root."""
