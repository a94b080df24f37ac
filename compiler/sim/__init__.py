"""sim: what a Plan would take on a Topology: a discrete-event execution (cost-model §3)."""
