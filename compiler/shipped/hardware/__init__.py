"""The known devices and networks: figures with their sources."""
