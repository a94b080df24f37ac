"""The device layer: one interface to the runtimes of CUDA, HIP and the CPU, and its Python face."""
