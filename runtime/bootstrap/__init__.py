"""How the ranks of a job meet and what they say to each other: C++ sources with one C header,
`include/hccc_bootstrap.h`, and their Python face, `library`.

docs/rendezvous.md has the protocol, its security and the environments of launchers.
"""
