"""reductions: reductions of one's own, `absmax: abs(a) > abs(b) ? a : b`, from their text.

A reduction is known by its text everywhere, where others are known by their name: `named` tells the
name, `own` what the text says.
"""
