"""tune: how to compile and call a program on a cluster, by simulated time for the requested
sizes."""
