"""NCCL's C interface over communicators: `libnccl.so.2`, and AMD's `librccl.so.1`."""
