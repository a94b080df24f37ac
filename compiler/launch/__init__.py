"""Builds a Plan's kernels and launches them: in this process, in others, and on other hosts."""
