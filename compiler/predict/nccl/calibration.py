"""calibration: what machines take, fitted to published measurements (`calibration.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from hccc.predict.nccl.machine import Generation, Link, Machine

Table = Mapping[str, Mapping[str, float]]


@cache
def calibration() -> Table:
    """Sections of names and figures."""
    return tomllib.loads(files(__package__).joinpath("calibration.toml").read_text("utf-8"))


def kind(m: Machine) -> str:
    """The class of machines, for what blocks and links do."""
    if m.link is Link.PCIE:
        return "PCIe"
    if m.generation.amd:
        return "AMD"
    return str(Generation.AMPERE if m.generation is Generation.VOLTA else m.generation)


def link_kind(m: Machine) -> str:
    """The class of machines, for what links deliver."""
    return str(m.generation) if m.generation.amd else kind(m)
