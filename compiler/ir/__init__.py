"""The intermediate representations, from Program to Plan: one file each, no algorithms."""
