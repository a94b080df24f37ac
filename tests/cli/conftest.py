"""The fixture that runs command lines."""

from __future__ import annotations

from tests.cli.commandline import hccc

__all__ = ["hccc"]
