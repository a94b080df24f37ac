"""The transport between hosts: the proxy of `include/hccc/network.h` over UCX, and its Python face.

`include/hccc_transport.h` is its interface, `transport.cpp` all of it as one translation unit,
`library` what loads it. docs/network-transport.md says how it works.
"""
