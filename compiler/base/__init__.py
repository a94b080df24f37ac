"""base: what everything else uses and that uses nothing of hccc: errors, files, types, loops."""
