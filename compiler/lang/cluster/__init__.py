"""The cluster language (`.cluster`): text to Topology, and back."""
