"""The proofs over a Plan. Each returns the proved claim or raises an error."""
