"""Plan → text of CUDA, HIP and CPU kernels, and of the library around them."""
