"""calibration: times of machines, fitted to published measurements (`calibration.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from hccc.predict.nccl.machine import Generation, NcclLink, NcclMachine

Table = Mapping[str, Mapping[str, float]]


@cache
def calibration() -> Table:
    """Reads the sections of names and figures."""
    return tomllib.loads(files(__package__).joinpath("calibration.toml").read_text("utf-8"))


def kind(m: NcclMachine) -> str:
    """Returns the class of machines, for the figures of blocks and links."""
    if m.link is NcclLink.PCIE:
        return "PCIe"
    if m.generation.amd:
        return "AMD"
    return str(Generation.AMPERE if m.generation is Generation.VOLTA else m.generation)


def link_kind(m: NcclMachine) -> str:
    """Returns the class of machines, for the rates that links deliver."""
    return str(m.generation) if m.generation.amd else kind(m)
