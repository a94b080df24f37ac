"""sim: what a Plan would take on a Topology: a discrete-event execution (DESIGN §7)."""
