"""The proofs over a Plan: each returns what holds, or raises what does not."""
