"""relays: the pod that sends each chunk into each other pod.

As a rule that is the chunk's own pod. Where pods have equal shares, a pod with few or slow NICs has
most to send: its chunks to all others. Chunks enter every pod once, and that takes as long as the
slowest pod needs to receive. A pod that would send longer hands chunks to other pods to forward,
the least busy first.
"""

from __future__ import annotations

import numpy as np

from hccc.base.jit.compiled import njit
from hccc.ir.arrays import B1, I8, places_among
from hccc.ir.topology import F8, Topology
from hccc.synth.common.nics import nic_rates
from hccc.synth.pods.pods import Pods

GOLDEN = (5**0.5 - 1) / 2  # multiples of it are spread evenly, modulo 1


def senders(t: Topology, p: Pods, home: I8) -> I8:
    """Returns the pod that sends each chunk: i8[N, K], in row `away` into the pod so many after its
    own. home: i8[K] the pod of each chunk. At most one pod forwards a chunk to another.

    O(chunks · pods), times pods where any is slow.
    """
    count = np.bincount(home, minlength=len(p))
    rate = nic_rates(t)
    sender = np.repeat(home[None, :], len(p), axis=0)
    if not (rate > 0).all():
        return sender
    enough = float(((len(home) - count) / rate).max())
    spare = rate * enough - count * (len(p) - 1)
    if (spare < 0).any() and len(p) > 2:
        # Neighbours share NICs: chunks that are far from each other in their pod come first.
        order = np.argsort(places_among(home) * GOLDEN % 1, kind="stable")
        _relayed(sender, home, order, spare, rate)
    return sender


@njit
def _relayed(sender: I8, home: I8, order: I8, spare: F8, rate: F8) -> None:
    """Puts forwarding pods into `sender`. spare: f8[N] how many chunks more each pod could send;
    changed too."""
    pods, chunks = sender.shape
    passes_on = np.zeros((chunks, pods), np.bool_)
    for away in range(pods - 1, 0, -1):
        for k in order:
            own = home[k]
            to = (own + away) % pods
            if spare[own] >= 0 or passes_on[k, to]:
                continue
            best = _relay(sender, passes_on, spare, rate, k, own, to)
            if best >= 0:
                sender[away, k] = best
                passes_on[k, best] = True
                spare[best] -= 1
                spare[own] += 1


@njit
def _relay(sender: I8, passes_on: B1, spare: F8, rate: F8, k: int, own: int, to: int) -> int:
    """Returns the pod with most time left that gets chunk k from its own pod; -1 where none has
    any."""
    pods = len(spare)
    best, most = -1, 0.0
    for x in range(pods):
        if x in (own, to) or sender[(x - own) % pods, k] != own or spare[x] < 1:
            continue
        left = spare[x] / rate[x] + (1.0 if passes_on[k, x] else 0.0)
        if left > most:
            best, most = x, left
    return best
