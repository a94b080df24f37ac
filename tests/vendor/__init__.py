"""Tests of vendors' libraries as engines."""
