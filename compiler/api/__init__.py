"""api: what `import hccc` offers."""
