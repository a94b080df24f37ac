"""MSCCL XML: text to a checked table of steps."""
