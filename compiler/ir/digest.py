"""digest: short hashes of Plans, Catalogues and Topologies that ignore names and sources.

Tuning uses them to skip settings that compile to the same Plan; ranks that launch together use them
to check that they loaded the same library.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b

import numpy as np

from hccc.ir.catalogue import Catalogue
from hccc.ir.choices import Accumulate, PlanProtocol
from hccc.ir.plan import Plan
from hccc.ir.topology import Topology

DESCRIPTION = frozenset({"name", "source", "line", "sub", "provenance"})  # tells people of it
_LAST = frozenset({"accumulate", "protocol", "max_bytes", "greets", "multicast"})


def digest(plan: Plan) -> bytes:
    """Hashes everything in a Plan but its DESCRIPTION. O(size of Plan).

    A type of sums, a protocol and a multicast that are not the default come last, so that they
    leave other digests as they were; so does a demand that there is not.
    """
    state = blake2b(digest_size=16)
    for field in fields(plan):
        if field.name in DESCRIPTION | _LAST:
            continue
        if field.name != "reductions" or plan.reductions:
            _add(state, getattr(plan, field.name))
    if plan.accumulate is not Accumulate.FLOAT32:
        _add(state, plan.accumulate.value)
    if plan.protocol is not PlanProtocol.SIMPLE:
        _add(state, f"{plan.protocol.value}, {plan.max_bytes}{', greets' * plan.greets}")
    if plan.multicast is not None:
        _add(state, f"multicast, {plan.multicast.value} bits")
    return state.digest()


def cluster_digest(topology: Topology) -> bytes:
    """Hashes everything in a Topology but its name. O(its size)."""
    state = blake2b(digest_size=16)
    for field in fields(topology):
        if field.name not in DESCRIPTION:
            _add(state, getattr(topology, field.name))
    return state.digest()


def library_digest(catalogue: Catalogue) -> int:
    """Hashes a compiled library to 64 bits, ignoring names. O(size of the Plans)."""
    state = blake2b(digest_size=8)
    for plan in catalogue.plans:
        state.update(digest(plan))
    if not catalogue.alone:
        _add(state, catalogue.ranges)
    return int.from_bytes(state.digest(), "little")


def _add(state: blake2b, value: object) -> None:
    if isinstance(value, np.ndarray):
        state.update(repr(value.shape).encode())
        state.update(value.tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            if field.name != "demand" or getattr(value, field.name) is not None:
                _add(state, getattr(value, field.name))
    else:
        state.update(repr(value).encode() + b";")
