"""Building and launching a Plan's kernels here, in processes, and on other hosts."""
