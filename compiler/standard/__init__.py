"""Libraries of the standard collectives for the ranks of a host: made, proved and built once"""
