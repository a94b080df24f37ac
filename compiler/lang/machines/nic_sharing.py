"""nic_sharing: which GPUs send over which NICs, where a description says only how near they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hccc.lang.machines.machine import Nic


def shared(near: Sequence[tuple[int, ...]], rates: Mapping[int, float]) -> tuple[Nic, ...]:
    """Each GPU's NICs among those nearest to it, divided evenly.

    near: the NICs nearest to each GPU, most of them few, by number; rates: GB/s of each. GPUs with
    the fewest to choose from choose first, and others leave those alone where they can.
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
    """GPUs and NICs that are joined, directly or over others, by first GPU."""
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
