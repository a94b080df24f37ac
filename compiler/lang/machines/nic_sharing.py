"""nic_sharing: assigns NICs to GPUs if a description has only the distances between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hccc.lang.machines.machine import Nic


def share_nics(near: Sequence[tuple[int, ...]], rates: Mapping[int, float]) -> tuple[Nic, ...]:
    """Gives each GPU NICs among its nearest, divided evenly.

    near: the nearest NICs of each GPU, by number; rates: GB/s of each NIC. GPUs with the fewest
    nearest NICs choose first, and later ones take NICs that are still free if there are any.
    """
    taken: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for nics in sorted(set(near), key=lambda nics: (len(nics), nics)):
        gpus = [gpu for gpu, of in enumerate(near) if of == nics]
        free = [nic for nic in nics if nic not in taken] or list(nics)
        if not free:
            continue
        most = max(len(gpus), len(free))
        pairs += [(gpus[i * len(gpus) // most], free[i * len(free) // most]) for i in range(most)]
        taken |= set(free)
    return tuple(_entry(*group, rates) for group in _joined(pairs))


def _joined(pairs: Sequence[tuple[int, int]]) -> list[tuple[set[int], set[int]]]:
    """Returns groups of GPUs and NICs connected by pairs, directly or over others, by first GPU."""
    found: list[tuple[set[int], set[int]]] = []
    for gpu, nic in pairs:
        gpus, nics, others = {gpu}, {nic}, []
        for group in found:
            if gpu in group[0] or nic in group[1]:
                gpus |= group[0]
                nics |= group[1]
            else:
                others.append(group)
        found = [*others, (gpus, nics)]
    return sorted(found, key=lambda group: min(group[0]))


def _entry(gpus: set[int], nics: set[int], rates: Mapping[int, float]) -> Nic:
    each = [rates[nic] for nic in sorted(nics)]
    alike = len(set(each)) == 1
    return Nic(tuple(sorted(gpus)), each[0] if alike else sum(each), len(each) if alike else 1)
