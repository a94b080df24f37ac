"""addresses: by which addresses other hosts reach this one."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import psutil  # type: ignore[import-untyped]

_NO_LINE = ("lo", "docker", "virbr", "br-")  # interfaces that do not lead to other hosts


def address_of(host: str) -> str | None:
    """Returns an address of this machine by which other hosts reach it; None: only loopback.

    In this order: that of the name `host`, the address that ssh came in by, that of the first
    interface.
    """
    return next(filter(_is_here, _addresses(host)), None)


def _addresses(host: str) -> Iterator[str]:
    with suppress(OSError, UnicodeError):
        for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            yield str(info[4][0])
    yield from os.environ.get("SSH_CONNECTION", "").split()[2:3]
    state = psutil.net_if_stats()
    for family in (socket.AF_INET, socket.AF_INET6):
        for name, addresses in psutil.net_if_addrs().items():
            if name.startswith(_NO_LINE) or name not in state or not state[name].isup:
                continue
            yield from (a.address for a in addresses if a.family == family)


def _is_here(address: str) -> bool:
    """Tells whether the address is this machine's, and no loopback address."""
    with suppress(OSError, ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
        if not (parsed.is_loopback or parsed.is_link_local):
            with socket.socket(family, socket.SOCK_STREAM) as bound:
                bound.bind((address, 0))
                return True
    return False
