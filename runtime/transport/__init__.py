"""The transport between hosts: the proxy of `include/hccc/network.h` over UCX, and its Python
interface.

`include/hccc_transport.h` is its interface, `transport.cpp` all of it as one translation unit,
`ucx_transport` loads it. docs/network-transport.md describes it.
"""
