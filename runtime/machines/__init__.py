"""machines: what compilers make of the kernels for GPUs, run on weak memory without a GPU.

`ptx` runs nvcc's PTX, `gcn` clang's assembly for AMD. Both share memory (`memory.h`), the order of
blocks (`grids.h`), what they find (`kernel.py`), arrays and launches (`arrays.py`, `launcher.py`).
"""
