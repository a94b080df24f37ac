"""one_shot: in protocol LL every rank that wants a sum computes it, instead of one for all.

    before  1: send x to 0    0: x + packets of 1 -> own, packets to 1    1: packets of 0 -> own
    after   0: send x to 1    1: send x to 0    0, 1: x of 0 + x of 1 -> own

A call then takes one hop instead of two, for n/2 times the bytes over n ranks: worth it where calls
are short. Each rank adds the same terms in the same order, so the bits stay. Done where all of a
program is sends of what ranks have from the start, reductions of these, and copies of the results;
any other is returned as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hccc.analysis.grouping import graph
from hccc.ir.arrays import Csr
from hccc.ir.primitives import Buffer, Operands, Primitives, Queues

MOST_RANKS = 16  # a rank sends every chunk to all others
Place = tuple[int, int, int]  # rank, buffer, slot
Message = tuple[int, int]  # queue, number


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum, computed at `rank`: places of its terms, in order; where it goes there; and the
    primitive that it takes the other columns from."""

    rank: int
    terms: tuple[Place, ...]
    targets: tuple[Place, ...]
    like: int


def one_shot(p: Primitives) -> Primitives:
    """Returns `p` with sums computed where they are wanted, or as it is. O(operands of the
    result)."""
    if p.dag.program.collective.n_ranks > MOST_RANKS or not len(p.queues):
        return p
    sums = _sums(p)
    return p if sums is None else _rebuilt(p, sums)


def _row(o: Operands, i: int) -> list[Place]:
    return [
        (int(o.rank[k]), int(o.buffer[k]), int(o.slot[k])) for k in range(o.ptr[i], o.ptr[i + 1])
    ]


def _message(place: Place) -> Message | None:
    return (place[0], place[2]) if place[1] == Buffer.QUEUE else None


def _sums(p: Primitives) -> list[_Sum] | None:
    """Returns all sums of `p`, once for each rank that wants them; None if it has another form, or
    a rank gets a sum twice."""
    sent: dict[Message | None, int] = {}
    for i in range(len(p)):
        sent |= {_message(place): i for place in _row(p.dst, i) if _message(place)}
    adds = p.src.counts() > 1
    found = []
    for i in range(len(p)):
        sources, targets = _row(p.src, i), _row(p.dst, i)
        own = tuple(place for place in targets if not _message(place))
        maker = sent.get(_message(sources[0]), i)
        if adds[i]:
            terms = [_term(p, sent, place) for place in sources]
        elif maker != i and adds[maker] and len(own) == len(targets):
            terms = [_term(p, sent, place) for place in _row(p.src, maker)]
        elif maker == i and not own and not len(p.deps.row(i)):
            continue  # a send of what its rank has from the start
        else:
            return None
        known = tuple(term for term in terms if term)
        if len(known) < len(terms):
            return None
        found.append(_Sum(int(p.owner[i]), known, own, i))
    again = len({(s.rank, s.terms) for s in found}) < len(found)
    return None if again or not any(s.targets for s in found) else found


def _term(p: Primitives, sent: dict[Message | None, int], place: Place) -> Place | None:
    """Returns the place at whose rank a term lies from the start; None if it is made."""
    message = _message(place)
    if message is None:
        return place
    maker = sent[message]
    sources = _row(p.src, maker)
    return sources[0] if len(sources) == 1 and not _message(sources[0]) else None


def _rebuilt(p: Primitives, sums: list[_Sum]) -> Primitives:
    """Returns the sends of all terms, then the sums that are wanted."""
    sums = [s for s in sums if s.targets]
    wanted: dict[Place, list[int]] = {}
    for s in sums:
        for term in s.terms:
            wanted.setdefault(term, [])
            if s.rank != term[0] and s.rank not in wanted[term]:
                wanted[term].append(s.rank)
    wanted = {term: ranks for term, ranks in wanted.items() if ranks}
    queues, message = _queues(p, wanted)
    sends = list(wanted)
    at = {term: i for i, term in enumerate(sends)}
    chunk = {term: int(p.chunk[s.like]) for s in sums for term in s.terms}
    n = len(sends)
    like = np.array([s.like for s in sums], np.int32)
    src = [[term] for term in sends]
    src += [[t if t[0] == s.rank else message[t, s.rank] for t in s.terms] for s in sums]
    dst = [[message[term, rank] for rank in wanted[term]] for term in sends]
    dst += [list(s.targets) for s in sums]
    edges = [(n + k, at[t]) for k, s in enumerate(sums) for t in s.terms if t in at]
    rows, preds = np.array(edges, np.int32).reshape(-1, 2).T
    return replace(
        p,
        owner=np.concatenate([[t[0] for t in sends], [s.rank for s in sums]]),
        chunk=np.concatenate([[chunk[t] for t in sends], p.chunk[like]]),
        sub=np.concatenate([np.zeros(n, np.int32), p.sub[like]]),
        final=np.concatenate([np.zeros(n, np.uint8), _final(p, sums)]),
        guard=np.zeros(n + len(sums), np.uint8),
        src=_operands(src),
        dst=_operands(dst),
        deps=graph(rows, preds, n + len(sums)),
        tasks=_tasks(p, n, like),
        queues=queues,
    )


def _final(p: Primitives, sums: list[_Sum]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Marks the sums that are complete: those of the same terms as one that is."""
    complete = {s.terms for s in sums if p.final[s.like]}
    return np.array([s.terms in complete for s in sums], np.uint8)


def _queues(
    p: Primitives, wanted: dict[Place, list[int]]
) -> tuple[Queues, dict[tuple[Place, int], Place]]:
    """Returns a queue for each pair of ranks, and the message that takes each term to each rank."""
    pairs = sorted({(term[0], rank) for term, ranks in wanted.items() for rank in ranks})
    number = {pair: q for q, pair in enumerate(pairs)}
    length = [0] * len(pairs)
    message: dict[tuple[Place, int], Place] = {}
    for term, ranks in wanted.items():
        for rank in ranks:
            q = number[term[0], rank]
            message[term, rank] = (q, int(Buffer.QUEUE), length[q])
            length[q] += 1
    unset = np.full(len(pairs), -1, np.int32)
    src, dst = np.array(pairs, np.int32).reshape(-1, 2).T
    return Queues(src, dst, np.array(length, np.int32), unset, unset), message


def _operands(rows: list[list[Place]]) -> Operands:
    ptr = np.cumsum([0, *map(len, rows)])
    rank, buffer, slot = np.array([place for row in rows for place in row]).reshape(-1, 3).T
    return Operands(ptr, rank, buffer, slot)


def _tasks(p: Primitives, sends: int, like: np.ndarray[tuple[int], np.dtype[np.int32]]) -> Csr:
    """Gives every task to the sums that it is for, at both of its ends."""
    rows: list[list[int]] = [[] for _ in range(sends)]
    rows += [p.tasks.row(int(i)).tolist() for i in like]
    kept = set(like.tolist())
    lost = [t for i in range(len(p)) if i not in kept for t in p.tasks.row(i).tolist()]
    rows[0] += lost
    ptr = np.cumsum([0, *map(len, rows)])
    return Csr(ptr, np.array([t for row in rows for t in row], np.int32))
