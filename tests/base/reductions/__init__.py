"""Tests of `hccc.base.reductions`."""
