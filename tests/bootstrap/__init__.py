"""Tests of the rendezvous of processes."""
