"""benchmarks.paper: ResCCL's evaluation, repeated in hccc's simulator."""
