"""cegis: schedules of the fewest steps by solver (HeteCCL §4-5, App. H, I, K)."""
