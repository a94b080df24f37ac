"""Things to draw in the tests of pictures, and readers of drawings."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hccc.base.diagnostics import Source
from hccc.driver.compilation import compile_text
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.ir.topology import Topology
from hccc.lang.cluster import load as cluster
from hccc.lang.transfer import load as transfer
from hccc.pictures.canvas import Picture
from hccc.sim.machine import prepare
from hccc.sim.simulate import Request, Run, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTERS = sorted((EXAMPLES / "clusters").glob("*.cluster"))
SVG = "{http://www.w3.org/2000/svg}"


@cache
def site(name: str) -> Topology:
    """Loads one of the example clusters."""
    return cluster.load(EXAMPLES / "clusters" / f"{name}.cluster")


@cache
def compiled(name: str, on: str | None = None, fuse: str = "auto") -> CompiledProgram:
    """Compiles an example program, by default for the cluster its header describes."""
    options = Options("hpds", prove=False, fuse=fuse, tune="off", network_lowering="slots")
    return compile_text(transfer.read(EXAMPLES / f"{name}.rccl"), options, site(on) if on else None)


def program(body: str, **header: object) -> CompiledProgram:
    """Compiles a program of its own."""
    keys = ", ".join(f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in header.items())
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return compile_text(Source("test.rccl", f"ResCCLAlgo({keys}):\n{lines}\n"), Options())


def ran(name: str, on: str, size: int, micro_batch: int = 0, window: int = 0) -> Run:
    """Simulates an example on an example cluster."""
    machine = prepare(compiled(name, on).plan, site(on))
    return simulate(machine, Request(size, micro_batch, window))


def texts(picture: Picture) -> list[str]:
    """Returns all text that is drawn, in order; also checks that the picture is XML."""
    return [e.text or "" for e in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def tips(picture: Picture) -> list[str]:
    """Returns the texts shown where the pointer rests; the first `title` is the picture's."""
    return [e.text or "" for e in ET.fromstring(picture.svg).iter(f"{SVG}title")][1:]


def numbers(text: str) -> Iterator[int]:
    """Yields the numbers in `0–3, 7`."""
    for a, b in re.findall(r"(\d+)(?:–(\d+))?", text):
        yield from range(int(a), int(b or a) + 1)
