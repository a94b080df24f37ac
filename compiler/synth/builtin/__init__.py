"""builtin: ring, tree and other known algorithms as Programs for a Topology."""
