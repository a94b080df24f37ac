"""Measuring this machine and writing it as a cluster file."""
