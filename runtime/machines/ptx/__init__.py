"""ptx: runs the text that nvcc makes of the kernels on a machine with weak memory, without a GPU.

`parse` reads PTX, `encode` makes a table of instructions of it, `machine` (`machine.cpp`) executes
that, `launcher` launches a collective on it as on GPUs, a kernel for each rank.
"""
