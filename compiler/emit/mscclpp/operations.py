"""operations: a direct Plan as MSCCL++ operations and the synchronisation that orders them.

The executor has no dependency edges (msccl-formats §7). Between two ranks order is a memory
channel: the k-th wait on it returns after the k-th signal. Between two thread blocks of one rank it
is a device semaphore, used the same way. Each pair of blocks has its own, so that a wait for
primitive p is as many waits as p's number among the signals of that pair, less those already done;
all are taken before the block ends, because the counts outlive the launch. A handshake with every
block that touches a rank's memory comes first and last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hccc.base.diagnostics import UserError, fail
from hccc.emit.order import Order
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Operands, Transport

DIRECT_HELP = "compile with --transport direct --allocator connection"
ONE_DOMAIN = "compile for one memory domain, as a cluster's `memory` says which ranks are in"
PEERS_PER_OP = 8  # MAX_CHANNEL_PER_OPERATION
Location = tuple[int, str, int]  # (rank, buffer letter, slot)
Pair = tuple[int, int]  # blocks, numbered over all ranks
_LETTER = {Buffer.INPUT: "i", Buffer.OUTPUT: "o", Buffer.SCRATCH: "s"}


@dataclass(frozen=True, slots=True)
class Move:
    """One data operation: `name` in the executor's terms, own places first."""

    name: str
    src: tuple[Location, ...]
    dst: tuple[Location, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """One signal, wait, sem_release or sem_acquire, for each of the blocks `others`."""

    name: str
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """nop: the threads of the block wait for each other."""


Op = Move | Sync | Fence


@dataclass(slots=True)
class MscclppBlock:
    """One thread block: its operations, and the ranks whose memory it touches."""

    rank: int
    ops: list[Op] = field(default_factory=list)
    touches: set[int] = field(default_factory=set)


def operations(plan: Plan, in_place: bool) -> list[MscclppBlock]:
    """Returns the thread blocks of all ranks, rank by rank.

    Raises:
        UserError E530: not a direct plan; E531: no operation performs a primitive.
    """
    if plan.transport is Transport.MIXED:
        message = "MSCCL++'s memory channels reach one memory domain; this plan leaves it"
        raise fail("E530", message, help=ONE_DOMAIN)
    if plan.transport is not Transport.DIRECT:
        raise fail("E530", "MSCCL++ puts and gets; this plan sends and receives", help=DIRECT_HELP)
    return _OperationWriter(plan, in_place).blocks()


class _OperationWriter:
    """Makes the operations of each block."""

    def __init__(self, plan: Plan, in_place: bool) -> None:
        self._plan, self._in_place = plan, in_place
        self._order = Order(plan, in_place)
        self._rank = [int(r) for r in plan.block_rank()]
        # For a pair of blocks: the primitives of the first that the second waits for, in order.
        self._signals: dict[Pair, list[int]] = {}

    def blocks(self) -> list[MscclppBlock]:
        blocks = [MscclppBlock(rank) for rank in self._rank]
        rows = [self._rows(b) for b in range(len(blocks))]
        needs = {row: self._needs(row) for active in rows for row in active}
        for row, preds in needs.items():
            for pred in preds:
                pair = (int(self._order.block[pred]), int(self._order.block[row]))
                self._signals.setdefault(pair, []).append(pred)
        self._signals = {pair: sorted(set(found)) for pair, found in self._signals.items()}
        for b, block in enumerate(blocks):
            block.touches = self._touched(rows[b], block.rank)
        for rank in sorted({r for block in blocks for r in block.touches} - set(self._rank)):
            self._rank.append(rank)  # does nothing itself, but says when its memory is there
            blocks.append(MscclppBlock(rank))
            rows.append([])
        meet = self._meeting(blocks)
        for b, block in enumerate(blocks):
            self._fill(b, block, rows[b], needs, meet)
        return blocks

    def _rows(self, b: int) -> list[int]:
        lo, hi = self._plan.tb_ptr[b : b + 2].tolist()
        return [row for row in range(lo, hi) if self._order.active[row]]

    def _needs(self, row: int) -> set[int]:
        """Returns the primitives in other blocks that `row` waits for."""
        block = self._order.block
        found = self._order.preds(range(row, row + 1))
        return {p for p in found if block[p] != block[row]}

    def _touched(self, rows: list[int], rank: int) -> set[int]:
        """Returns the other ranks in whose memory primitives read or write."""
        found: set[int] = set()
        for operands in (self._plan.src, self._plan.dst):
            for row in rows:
                found |= set(operands.rank[operands.ptr[row] : operands.ptr[row + 1]].tolist())
        return found - {rank}

    def _meeting(self, blocks: list[MscclppBlock]) -> dict[int, list[int]]:
        """Chooses for every block the blocks of other ranks it shakes hands with, one for each
        rank.

        One that it exchanges signals with anyway, or else the one with the fewest partners.
        """
        partners: list[set[int]] = [set() for _ in blocks]
        for a, b in self._signals:
            if self._rank[a] != self._rank[b]:
                partners[a].add(b)
                partners[b].add(a)
        of_rank: dict[int, list[int]] = {}
        for b, rank in enumerate(self._rank):
            of_rank.setdefault(rank, []).append(b)
        meet: dict[int, list[int]] = {}
        for a, block in enumerate(blocks):
            for rank in sorted(block.touches):
                known = [b for b in of_rank[rank] if b in partners[a]]
                chosen = known[0] if known else min(of_rank[rank], key=lambda b: len(partners[b]))
                partners[a].add(chosen)
                partners[chosen].add(a)
                meet.setdefault(a, []).append(chosen)
        return meet

    def _fill(
        self,
        b: int,
        block: MscclppBlock,
        rows: list[int],
        needs: dict[int, set[int]],
        meet: dict[int, list[int]],
    ) -> None:
        """Adds handshake, operations with their synchronisation, handshake."""
        guests = sorted(a for a, hosts in meet.items() if b in hosts)
        hosts = sorted(meet.get(b, []))
        out = OperationStream(block, self._rank)
        out.sync("signal", guests)  # my rank's memory is there
        out.sync("wait", hosts)
        taken: dict[int, int] = {}
        for row in rows:
            self._take(out, b, needs[row], taken)
            for move in self._moves_of(row, block.rank):
                out.move(move)
            after = sorted(
                other for (a, other), found in self._signals.items() if a == b and row in found
            )
            out.sync("signal", after)
        out.sync("signal", hosts)  # I am done with your memory
        out.sync("wait", guests)

    def _take(self, out: OperationStream, b: int, preds: set[int], taken: dict[int, int]) -> None:
        """Adds waits for `preds`: for the signals of their blocks that have not been taken yet."""
        missing: dict[int, int] = {}
        for pred in preds:
            a = int(self._order.block[pred])
            number = self._signals[a, b].index(pred) + 1
            missing[a] = max(missing.get(a, 0), number - taken.get(a, 0))
        while any(times > 0 for times in missing.values()):
            now = sorted(a for a, times in missing.items() if times > 0)
            out.sync("wait", now)
            for a in now:
                missing[a] -= 1
                taken[a] = taken.get(a, 0) + 1

    def _moves_of(self, row: int, rank: int) -> Iterator[Move]:
        """Yields the data operations that perform a primitive."""
        src = self._places(self._plan.src, row)
        dst = self._places(self._plan.dst, row)
        own = [p for p in dst if p[0] == rank]
        away = [p for p in dst if p[0] != rank]
        if src[0][0] != rank or any(p[0] == rank for p in src[1:]) or len(own) > 1:
            raise self._inexpressible(row)
        if len(src) == 1:
            for to in own:
                yield Move("copy", (src[0],), (to,))
            for k in range(0, len(away), PEERS_PER_OP):
                part = tuple(away[k : k + PEERS_PER_OP])
                yield Move("put", (src[0],) * len(part), part)
            return
        if not own or len(src) > PEERS_PER_OP + 1 or len(away) > PEERS_PER_OP:
            raise self._inexpressible(row)
        yield Move("rres" if away else "rre", tuple(src), (own[0], *away))

    def _places(self, operands: Operands, row: int) -> list[Location]:
        found = []
        for k in range(operands.ptr[row], operands.ptr[row + 1]):
            buffer, rank, slot = Buffer(operands.buffer[k]), int(operands.rank[k]), operands.slot[k]
            if buffer is Buffer.STAGE:
                extra = int(self._plan.scratch_slots[rank])
                found.append(
                    (rank, "s", extra + int(slot)) if self._in_place else (rank, "i", int(slot))
                )
            else:
                found.append((rank, _LETTER[buffer], int(slot)))
        return found

    def _inexpressible(self, row: int) -> UserError:
        plan, b = self._plan, int(self._order.block[row])
        sources, targets = (int(o.ptr[row + 1] - o.ptr[row]) for o in (plan.src, plan.dst))
        return fail(
            "E531",
            f"no operation of MSCCL++ does what primitive {row - plan.tb_ptr[b]} of rank "
            f"{self._rank[b]} does: {sources} sources, {targets} destinations",
            help="compile with --fuse reduce or --fuse none",
        )


class OperationStream:
    """Appends operations to a block, with the fences that its own threads need."""

    def __init__(self, block: MscclppBlock, rank_of: list[int]) -> None:
        self._block, self._rank_of = block, rank_of
        self._waited = self._moved = False
        self._read: set[Location] = set()
        self._written: set[Location] = set()

    def move(self, move: Move) -> None:
        """Appends a data operation; its threads share elements with other moves only."""
        src, dst = set(move.src), set(move.dst)
        if self._waited or src & self._written or dst & (self._read | self._written):
            self._fence()
        self._block.ops.append(move)
        self._moved = True
        self._read |= src
        self._written |= dst

    def sync(self, name: str, others: list[int]) -> None:
        """Appends signals to, or waits for, each of `others`, by single threads."""
        if not others:
            return
        if name == "signal" and self._moved:  # every wait is followed by a move
            self._fence()
        rank = self._block.rank
        local = [b for b in others if self._rank_of[b] == rank]
        away = [b for b in others if self._rank_of[b] != rank]
        semaphore = {"signal": "sem_release", "wait": "sem_acquire"}[name]
        for kind, group in ((name, away), (semaphore, local)):
            for k in range(0, len(group), PEERS_PER_OP):
                self._block.ops.append(Sync(kind, tuple(group[k : k + PEERS_PER_OP])))
        self._waited |= name == "wait"

    def _fence(self) -> None:
        self._block.ops.append(Fence())
        self._waited = self._moved = False
        self._read.clear()
        self._written.clear()
