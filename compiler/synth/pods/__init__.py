"""pods: Programs of large clusters, composed of one pod of each kind."""
