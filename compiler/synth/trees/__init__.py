"""trees: Programs whose chunks follow packed trees."""
