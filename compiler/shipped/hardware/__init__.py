"""What is known about devices and networks: figures with their sources."""
