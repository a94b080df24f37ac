"""Loops that numba compiles, and where they are kept."""
