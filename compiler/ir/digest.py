"""digest: what a Plan or a Catalogue does, as a few bytes: equal for those that do the same.

Tuning searches what different orders and fusions lower to alike once; ranks that launch together
compare what they loaded.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b

import numpy as np

from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan

TOLD = frozenset({"name", "source", "line", "sub", "provenance"})  # to people only


def digest(plan: Plan) -> bytes:
    """Equal for Plans that differ in nothing but what people are told of them. O(size of Plan)."""
    found = blake2b(digest_size=16)
    for field in fields(plan):
        if field.name not in TOLD:
            _add(found, getattr(plan, field.name))
    return found.digest()


def library_digest(compiled: Plan | Catalogue) -> int:
    """64 bits: equal for what launches alike, whatever it is called. O(size of the Plans)."""
    found = blake2b(digest_size=8)
    if isinstance(compiled, Plan):
        found.update(digest(compiled))
    else:
        for plan in compiled.plans:
            found.update(digest(plan))
        _add(found, compiled.ranges)
    return int.from_bytes(found.digest(), "little")


def _add(found: blake2b, value: object) -> None:
    if isinstance(value, np.ndarray):
        found.update(repr(value.shape).encode())
        found.update(value.tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            _add(found, getattr(value, field.name))
    else:
        found.update(repr(value).encode() + b";")
