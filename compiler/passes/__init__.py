"""The passes, one file each: IR in, IR out. `verify` and the checks return their input or raise."""
