"""The passes, one file each: IR in, IR out. Proofs return what they proved or raise."""
