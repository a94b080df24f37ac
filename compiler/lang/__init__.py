"""The languages hccc reads: text in, IR out."""
