"""Translation validation: runs the emitted text on the host and compares it with its Plan."""
