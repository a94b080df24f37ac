"""The time of a Plan on a Topology: why, compared with other runtimes, and what would help."""
