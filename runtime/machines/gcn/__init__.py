"""gcn: runs clang's assembly of the kernels for AMD, with loads and stores in flight until a wait.

`parse` reads the assembly, `encode` makes a table of instructions of it, `machine` (`machine.cpp`)
executes that, wave by wave, `launcher` launches a collective on it as on GPUs.
"""
