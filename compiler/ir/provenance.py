"""provenance: how a Plan was made, as its file states it.

Nothing that runs depends on it: it is for reports on a plan whose program and command line are no
longer at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster a Plan was made for. name: its file, as it was given; text: its content in the
    cluster language, as hccc prints it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a Plan was made. version: hccc's; options: the chosen options, by name; scheduler: the
    scheduler used, if the option left it open; cluster: None without one."""

    version: str
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    scheduler: str = ""
    cluster: Cluster | None = None
