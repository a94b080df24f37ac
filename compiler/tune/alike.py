"""alike: whether two Plans are one to the simulator: what it is told of a structure, as a digest.

Different orders and fusions often lower to the same primitives; those are searched once.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b

import numpy as np

from hccc.ir.plan import Plan

TOLD = frozenset({"name", "source", "line", "sub", "provenance"})  # to people only


def digest(plan: Plan) -> bytes:
    """Equal for Plans that differ in nothing but what people are told of them. O(size of Plan)."""
    found = blake2b(digest_size=16)
    for field in fields(plan):
        if field.name not in TOLD:
            _add(found, getattr(plan, field.name))
    return found.digest()


def _add(found: blake2b, value: object) -> None:
    if isinstance(value, np.ndarray):
        found.update(repr(value.shape).encode())
        found.update(value.tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            _add(found, getattr(value, field.name))
    else:
        found.update(repr(value).encode() + b";")
