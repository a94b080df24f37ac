"""base: errors, files, types and loops, used by all other rooms; it imports none of them."""
