"""Demand: which ranks have each block of a call, and which must have it in the end.

Written, it is a line for each block, or entries between `;`; `#` begins a comment:

    0 -> 1-3          # rank 0 has it, ranks 1 to 3 want it
    4,5 -> 0          # two ranks have the same block: either will do
    sum 0-3 -> 0,2    # each has a piece, and the sum of all of them is wanted

This is SyCCL's F_s, F_d and r (§5.1), and HeteCCL's pre and post (§5.1). A send buffer consists of
the blocks that a rank has, a receive buffer of those that it wants, in their order: all collectives
are demands, with the buffers that they have (`ir/collective.demand_of`).

Invariants
1. There are blocks, at most MAX_CELLS / ranks of them.
2. Some rank has each block, and some rank wants it. A sum has two pieces or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hccc.ir.arrays import B1, I4, I8, frozen

MAX_CELLS = 1 << 22  # blocks times ranks: an Alltoall of 160 ranks
SUM, ARROW = "sum", "->"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|#[^\n]*)|(?P<end>[;\n])|(?P<word>->|[A-Za-z]+|[0-9]+|[-,])"
)
EXAMPLE = "for example `0 -> 1-3`, or `sum 0-3 -> 0`"


class DemandFault(Exception):
    """A mistake in the text of a demand. begin, end: its place, as offsets."""

    def __init__(self, message: str, begin: int, end: int, help: str = EXAMPLE) -> None:
        super().__init__(message)
        self.message, self.begin, self.end, self.help = message, begin, end, help


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A demand. has, wants: b1[blocks, ranks]; sums: b1[blocks] whether what ranks have are pieces
    of a sum, not copies."""

    has: B1
    wants: B1
    sums: B1

    def __post_init__(self) -> None:
        for name in ("has", "wants", "sums"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.bool_))

    def __len__(self) -> int:
        return len(self.sums)

    def __repr__(self) -> str:
        return f"Demand({self.text()!r}, {self.n_ranks} ranks)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Demand) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        parts = (self.has, self.wants, self.sums)
        return (self.has.shape, *(part.tobytes() for part in parts))

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return int(self.has.shape[1])

    def source(self) -> I4:
        """Returns the first rank that has each block: i4[blocks]."""
        first: I4 = self.has.argmax(1).astype(np.int32)
        return first

    def lacking(self) -> B1:
        """Tells which ranks must get something of each block: b1[blocks, ranks]."""
        lacks: B1 = self.wants & (self.sums[:, None] | ~self.has)
        return lacks

    @property
    def pairwise(self) -> bool:
        """Whether every block that moves goes from the one rank that has it to one rank."""
        lacks = self.lacking()
        single = (self.has.sum(1) == 1) & (lacks.sum(1) == 1) & ~self.sums
        return bool(single[lacks.any(1)].all())

    def lines(self) -> Iterator[str]:
        """Yields the line of each block."""
        for has, wants, sums in zip(self.has, self.wants, self.sums.tolist(), strict=True):
            yield f"{f'{SUM} ' if sums else ''}{_ranks(has)} {ARROW} {_ranks(wants)}"

    def text(self) -> str:
        """Returns all lines as one, for a program's header; `parse` of it is the same demand."""
        return "; ".join(self.lines())


class Slots(NamedTuple):
    """The places of blocks in the buffers of ranks. place: i4[blocks, ranks] of each block that is
    there; block: i4[blocks, ranks] in each place, the blocks that are not there last; counts:
    i8[ranks]."""

    place: I4
    block: I4
    counts: I8


@lru_cache(maxsize=64)
def send_slots(demand: Demand) -> Slots:
    """Returns the blocks of send buffers."""
    return _slots(demand.has)


@lru_cache(maxsize=64)
def receive_slots(demand: Demand) -> Slots:
    """Returns the blocks of receive buffers."""
    return _slots(demand.wants)


def _slots(there: B1) -> Slots:
    place = np.cumsum(there, axis=0, dtype=np.int32) - 1
    block = np.argsort(~there, axis=0, kind="stable").astype(np.int32)
    return Slots(frozen(place, np.int32), frozen(block, np.int32), there.sum(0, dtype=np.int64))


def _ranks(there: B1) -> str:
    """Writes ranks as `0-3,8`."""
    ranks = np.flatnonzero(there)
    breaks = [0, *(np.flatnonzero(np.diff(ranks) > 1) + 1).tolist(), len(ranks)]
    runs = [(int(ranks[a]), int(ranks[b - 1])) for a, b in pairwise(breaks)]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


class _Word(NamedTuple):
    """A word of the text, and its place; "" at the end of an entry."""

    text: str
    begin: int
    end: int


def parse(text: str, n_ranks: int) -> Demand:
    """Reads the text of a demand among `n_ranks` ranks.

    Raises:
        DemandFault: at the first mistake.
    """
    has, wants, sums = list[list[int]](), list[list[int]](), list[bool]()
    for words in _entries(text):
        reduced = words[0].text == SUM
        start, at = _read_ranks(
            words, int(reduced), n_ranks, "has a piece of it" if reduced else "has it"
        )
        if words[at].text != ARROW:
            raise _unexpected(words[at], f"`{ARROW}`")
        end, at = _read_ranks(words, at + 1, n_ranks, "wants it")
        if words[at].text:
            raise _unexpected(words[at], "the end of the line")
        if reduced and len(start) < 2:
            last = words[at]
            message = "a sum has the pieces of two ranks or more"
            raise DemandFault(message, words[0].begin, last.begin, f"without `{SUM}` it is a copy")
        has.append(start)
        wants.append(end)
        sums.append(reduced)
        if len(sums) * n_ranks > MAX_CELLS:
            message = f"the demand has more than {MAX_CELLS // n_ranks:,} blocks"
            raise DemandFault(message, words[0].begin, words[at].begin, "blocks can be larger")
    if not sums:
        raise DemandFault("the demand has no blocks", 0, len(text))
    return Demand(_matrix(has, n_ranks), _matrix(wants, n_ranks), np.array(sums))


def _entries(text: str) -> Iterator[list[_Word]]:
    """Yields the words of each entry, and an empty one at its end."""
    words, at = list[_Word](), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise DemandFault(f"{text[at]!a} is nothing of a demand", at, at + 1)
        if found.lastgroup == "word":
            words.append(_Word(found.group(), at, found.end()))
        elif found.lastgroup == "end" and words:
            yield [*words, _Word("", at, at + 1)]
            words = []
        at = found.end()
    if words:
        yield [*words, _Word("", at, at + 1)]


def _read_ranks(words: list[_Word], at: int, n_ranks: int, verb: str) -> tuple[list[int], int]:
    """Reads `0-3,8` from word `at` on; returns the ranks and the index of the next word."""
    ranks, first = list[int](), at
    while True:
        low = high = _rank(words[at], n_ranks, verb)
        at += 1
        if words[at].text == "-":
            high = _rank(words[at + 1], n_ranks, verb)
            at += 2
        if high < low:
            where = words[at - 3].begin, words[at - 1].end
            raise DemandFault(f"{low}-{high} is empty", *where, f"{high}-{low}")
        ranks += range(low, high + 1)
        if words[at].text != "," or len(ranks) > n_ranks:
            break
        at += 1
    if len(set(ranks)) < len(ranks):
        twice = next(r for r in ranks if ranks.count(r) > 1)
        raise DemandFault(f"rank {twice} is named twice", words[first].begin, words[at - 1].end)
    return ranks, at


def _rank(word: _Word, n_ranks: int, verb: str) -> int:
    if not word.text.isdecimal():
        raise _unexpected(word, f"a rank that {verb}")
    rank = int(word.text[:20])
    if rank >= n_ranks:
        message = f"there is no rank {rank:,}"
        raise DemandFault(message, word.begin, word.end, f"0 to {n_ranks - 1}")
    return rank


def _unexpected(word: _Word, wanted: str) -> DemandFault:
    found = f"`{word.text}`" if word.text else "the line ends"
    return DemandFault(f"{found} where {wanted} is expected", word.begin, word.end)


def _matrix(rows: list[list[int]], n_ranks: int) -> B1:
    """Returns which ranks each row has: b1[rows, ranks]."""
    found = np.zeros((len(rows), n_ranks), np.bool_)
    found[np.repeat(np.arange(len(rows)), [len(row) for row in rows]), np.concatenate(rows)] = True
    return found
