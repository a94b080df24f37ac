"""Building and launching a Plan's kernels on the devices of this machine."""
