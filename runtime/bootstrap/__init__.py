"""The rendezvous of a job's ranks: C++ sources with one C header, `include/hccc_bootstrap.h`, and
their Python interface, `rendezvous`.

docs/rendezvous.md has the protocol, its security and the environments of launchers.
"""
