"""What the simulator, the passes and synthesis ask of a Topology."""
