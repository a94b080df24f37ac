"""paths: Programs whose chunks go from one rank to one rank, over paths that share the load."""
