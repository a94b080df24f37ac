"""synth: Programs for a Topology, and what no Program can beat (cost-model §7)."""
