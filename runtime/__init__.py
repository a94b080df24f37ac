"""Launches of compiled collectives: sizes, builds, launchers for CPU and GPU, communicators.

`include/hccc/` holds the C++ that generated kernels are written in; `layout` has the same sizes in
Python; `build` compiles a generated directory; `cpu` and `cuda` launch it over arrays.
"""
