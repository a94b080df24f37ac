"""Sketches (SyCCL): copies that cross a dimension of the cluster in each stage, by its symmetry."""
