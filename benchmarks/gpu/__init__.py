"""benchmarks.gpu: generated kernels on a GPU, checked and timed beside interpreted ones."""
