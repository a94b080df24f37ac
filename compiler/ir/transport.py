"""transport: how data gets from one rank to another."""

from __future__ import annotations

from enum import IntEnum


class Transport(IntEnum):
    """How data crosses between ranks (kernel-protocol §1)."""

    DIRECT = 0  # one-sided put / get-reduce
    STAGED = 1  # send / recv through queues of S slots
