"""The device layer: one interface to the runtimes of CUDA, HIP and the CPU, and its Python
interface.

`calls.toml` describes every call; `generate` makes the header, the dispatcher and the bindings of
CUDA and HIP from it; `cpu/` implements the CPU; `device_layer` loads the library, `arrays` finds
the memory of any library's array.
"""
