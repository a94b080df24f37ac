"""sim: the time of a Plan on a Topology, by discrete-event simulation (cost-model §3)."""
