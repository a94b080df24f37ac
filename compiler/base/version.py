"""version: hccc's version, the only place that has it besides pyproject.toml."""

__version__ = "0.1.0"
