"""The transfer language (`.rccl`): text to Program."""
