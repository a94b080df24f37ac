"""The languages that hccc reads: text in, IR out."""
