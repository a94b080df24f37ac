"""bounds: the least time of any schedule, and estimates of the time of a Program."""
