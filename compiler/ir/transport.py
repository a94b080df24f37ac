"""transport: how data moves between ranks."""

from __future__ import annotations

from enum import IntEnum


class Transport(IntEnum):
    """How data crosses between ranks (kernel-protocol §1).

    AUTO is only an option: DIRECT if all ranks share one memory domain, else MIXED. So is
    MULTICAST: DIRECT, where the switch reads and writes one place of all ranks at once.
    """

    DIRECT = 0  # one-sided put / get-reduce
    STAGED = 1  # send / recv through queues of S slots
    MIXED = 2  # one-sided within a memory domain, carried by a proxy between two
    AUTO = 3
    MULTICAST = 4


PURE = (Transport.DIRECT, Transport.STAGED)  # one kind of connection everywhere
PLAN_TRANSPORTS = (*PURE, Transport.MIXED)
CHOICES = (Transport.AUTO, *PURE, Transport.MULTICAST)  # the values of --transport
