"""Answers whether one primitive happens before another, by labels and bounded searches."""
