"""Questions about a Topology from simulation, passes and synthesis: routes, cuts, latencies,
names."""
