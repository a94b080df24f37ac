"""choices: the pictures that there are, by name."""

from __future__ import annotations

WHATS = ("topology", "dag", "pipeline", "timeline")
