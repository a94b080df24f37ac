"""proof: the result of a proof: a claim that holds, and the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Proof:
    """A proved claim. `detail`: counts of interest, printed as a table."""

    name: str
    claim: str
    detail: dict[str, int | str] = field(default_factory=dict)
