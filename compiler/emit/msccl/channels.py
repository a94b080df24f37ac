"""channels: chooses one of MSCCL's channels for each connection.

A connection is (source, destination, channel), and a thread block has one channel for both its
directions; so connections that blocks join share one. The runtimes hold at most 32 sending and 32
receiving blocks of a rank on a channel (msccl.h:7). First fit, lowest channel first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hccc.base.diagnostics import UserError, fail
from hccc.emit.msccl.steps import STAGED_HELP, MscclBlock
from hccc.ir.plan import Plan

PER_CHANNEL = 32


@dataclass(frozen=True, slots=True)
class Channels:
    """`of`: the channel of every queue; `count`: of the channels used."""

    of: dict[int, int]
    count: int


def channels(plan: Plan, ranks: list[list[MscclBlock]]) -> Channels:
    """Chooses a channel for every queue. O(queues · channels).

    Raises:
        UserError E521: no choice of channels serves the blocks.
    """
    groups = _joined([b for blocks in ranks for b in blocks])
    groups.sort(key=lambda group: _turn(plan, group[0]))
    taken: set[tuple[int, int, int]] = set()
    sends: Counter[tuple[int, int]] = Counter()
    receives: Counter[tuple[int, int]] = Counter()
    of: dict[int, int] = {}
    for group in groups:
        ends = [(int(plan.queues.src[q]), int(plan.queues.dst[q])) for q in group]
        needs, takes = Counter(s for s, _ in ends), Counter(d for _, d in ends)
        if len(set(ends)) < len(ends) or max((needs | takes).values()) > PER_CHANNEL:
            raise _crowded(ends)
        channel = 0
        while (
            any((s, d, channel) in taken for s, d in ends)
            or any(sends[s, channel] + k > PER_CHANNEL for s, k in needs.items())
            or any(receives[d, channel] + k > PER_CHANNEL for d, k in takes.items())
        ):
            channel += 1
        taken |= {(s, d, channel) for s, d in ends}
        sends.update((s, channel) for s, _ in ends)
        receives.update((d, channel) for _, d in ends)
        of |= dict.fromkeys(group, channel)
    return Channels(of, max(of.values(), default=0) + 1)


def _turn(plan: Plan, queue: int) -> tuple[int, int]:
    """Returns a key that sorts queues by distance: the queues of one distance load every rank
    alike."""
    src, dst = int(plan.queues.src[queue]), int(plan.queues.dst[queue])
    return (dst - src) % plan.n_ranks, src


def _crowded(ends: list[tuple[int, int]]) -> UserError:
    (src, dst), _ = Counter(ends).most_common(1)[0]
    return fail(
        "E521",
        f"the thread blocks around the connection from rank {src} to rank {dst} need one channel, "
        f"which carries a connection once and {PER_CHANNEL} blocks of a rank each way",
        help=STAGED_HELP,
    )


def _joined(blocks: list[MscclBlock]) -> list[list[int]]:
    """Returns groups of queues that must share a channel, by first use."""
    root: dict[int, int] = {}

    def find(q: int) -> int:
        root.setdefault(q, q)
        while root[q] != q:
            root[q] = root[root[q]]
            q = root[q]
        return q

    served: set[tuple[int, bool]] = set()
    for block in blocks:
        for q, sends in ((block.send, True), (block.recv, False)):
            if q is not None and (q, sends) in served:
                raise fail(
                    "E521",
                    f"two thread blocks of rank {block.rank} serve one connection",
                    help=STAGED_HELP,
                )
            if q is not None:
                served.add((q, sends))
        ends = [q for q in (block.send, block.recv) if q is not None]
        for q in ends:
            a, b = find(ends[0]), find(q)
            root[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for q in root:
        groups.setdefault(find(q), []).append(q)
    return list(groups.values())
