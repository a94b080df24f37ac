"""version: hccc's version, the only place that has it besides pyproject.toml."""

__version__ = "0.2.0"
