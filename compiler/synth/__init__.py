"""synth: Programs for a Topology, and what no Program can beat; see DESIGN §8."""
