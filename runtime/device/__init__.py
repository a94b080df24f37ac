"""The device layer: one interface to the runtimes of CUDA, HIP and the CPU, and its Python face.

`calls.toml` describes every call; `generate` makes the header, the dispatcher and what binds CUDA
and HIP of it; `cpu/` is the CPU's implementation; `library` loads it all, `arrays` says where the
memory of any library's array is.
"""
