"""Measuring and checking launches as nccl-tests does."""
