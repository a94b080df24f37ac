"""The intermediate representations, in the order of the road: one file each, no algorithms."""
