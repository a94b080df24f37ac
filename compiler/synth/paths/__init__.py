"""paths: Programs whose chunks go from one rank to one rank, over the emptiest paths."""
