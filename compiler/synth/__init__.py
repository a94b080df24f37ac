"""synth: Programs made for a Topology, and lower bounds on the time of any (cost-model §7)."""
