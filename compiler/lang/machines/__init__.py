"""Machines as they describe themselves: NCCL's and RCCL's topology XML, `nvidia-smi topo -m`."""
