"""Descriptions that machines give of themselves: NCCL's and RCCL's topology XML, `nvidia-smi topo
-m`."""
