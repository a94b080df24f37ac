"""Translation validation: the text that is emitted, run on the host, against its Plan."""
