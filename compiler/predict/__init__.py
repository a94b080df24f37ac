"""What a Plan takes on a Topology, why, beside what else, and what would help."""
