"""vendor: the table of functions of vendors' libraries of collectives (docs/vendors.md)."""
