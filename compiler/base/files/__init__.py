"""Files: read once and bounded, written whole or not at all, one writer at a time."""
