"""Catalogues to emit and to run: small plans of one collective, and where each takes over."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.targets import TARGETS, Target
from hccc.ir import catalogue_json
from hccc.ir.catalogue import Catalogue, Range, assembled
from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from tests.emit import plans

BORDER = 40_000  # bytes of a message, out of place; in place the other plan takes over at FIRST
FIRST = 10_000


@cache
def pair(ranks: int = 4, transport: Transport = Transport.DIRECT) -> tuple[Plan, Plan]:
    """Compiles two algorithms for one collective."""
    mesh, ring = plans.mesh_allreduce(ranks), plans.ring_allreduce(ranks, channels=2)
    return (
        plans.compiled(mesh, transport=transport, source="mesh.rccl"),
        plans.compiled(ring, transport=transport, source="ring.rccl"),
    )


@cache
def apart(lowering: str = "slots") -> Catalogue:
    """Makes a catalogue of two algorithms over two memory domains, two ranks each, and a proxy."""
    found = []
    for program in (plans.mesh_allreduce(4, gpus=2), plans.ring_allreduce(4, gpus=2)):
        options = Options(network_lowering=lowering)
        found.append(driver.compile_program(program, options).plan)
    return made("apart", (found[0], found[1]), list(both().ranges))


@cache
def both(ranks: int = 4, transport: Transport = Transport.DIRECT) -> Catalogue:
    """Makes a catalogue: the mesh for small messages, the ring for large ones; in place, the ring
    from fewer bytes on and with other cuts."""
    ranges = [
        Range(False, 0, 0, 0, GRAIN),
        Range(False, BORDER, 1, 2, 4 * GRAIN),
        Range(False, 4 * BORDER, 1, 0, GRAIN),
        Range(True, 0, 0, 0, GRAIN),
        Range(True, FIRST, 1, 1, GRAIN),
    ]
    return made("both", pair(ranks, transport), ranges)


def made(name: str, of: tuple[Plan, ...], ranges: list[Range]) -> Catalogue:
    """Assembles a catalogue of these plans and ranges."""
    found = assembled(name, of, ranges)
    assert not found.alone
    return found


def written(catalogue: Catalogue, place: Path, targets: tuple[Target, ...] = TARGETS) -> Path:
    """Writes the directory of kernels of a catalogue."""
    text = catalogue_json.dumps(catalogue)
    directory.write(place, directory.files(catalogue, targets, text))
    return place


def only(plan: Plan, in_place: bool) -> Plan:
    """Restricts a plan to one kind of call."""
    return replace(plan, in_place=in_place, out_of_place=not in_place)


def bounded(catalogue: Catalogue, most: int) -> Catalogue:
    """Bounds the window of a catalogue's last plan."""
    last = replace(catalogue.plans[-1], max_window=most)
    return replace(catalogue, plans=(*catalogue.plans[:-1], last))


def unproved(plan: Plan) -> Plan:
    """Makes a plan wrong: its first primitive begins with another chunk than its own."""
    slots = plan.src.slot.copy()
    slots[0] = (slots[0] + 1) % plan.collective.n_chunks
    return replace(plan, src=replace(plan.src, slot=slots))
