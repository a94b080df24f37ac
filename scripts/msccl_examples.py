"""Writes examples/msccl/: MSCCL XML in several shapes, by this script or by hccc's exporter.

    python scripts/msccl_examples.py [DIR]

The first line of each file names its writer. This script writes the shapes that people write for
MSCCL: a thread block for each peer that sends and receives in turn, chunks sent together, one block
all around a ring. The exporter writes a block for each direction.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir.primitives import Transport
from hccc.lang.transfer import load as transfer

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MOST_DOUBLING = 8 << 20  # bytes: larger calls need more messages than a FIFO of Simple holds
ORIGIN = "<!-- {}: written by scripts/msccl_examples.py of hccc{}. -->\n"
EXPORTED = (
    (
        "allreduce_ring_n8_msccl",
        "ring_allreduce",
        "msccl",
        "Ring AllReduce, 8 ranks, microsoft/msccl's dialect",
    ),
    (
        "reducescatter_ring_n8_msccl",
        "ring_reducescatter",
        "msccl",
        "Ring ReduceScatter, 8 ranks, microsoft/msccl's dialect",
    ),
    ("broadcast_binomial_n8", "binomial_broadcast", "executor", "Binomial tree Broadcast, 8 ranks"),
)


@dataclass(slots=True)
class Block:
    """A thread block: its peers (-1: none) and the attributes of its steps."""

    send: int
    recv: int
    steps: list[str] = field(default_factory=list)

    def step(
        self,
        kind: str,
        src: tuple[str, int],
        dst: tuple[str, int],
        count: int = 1,
        after: tuple[int, int] = (-1, -1),
        awaited: bool = False,
    ) -> None:
        """Appends one step. after: (thread block, step) it waits for; awaited: another step waits
        for it."""
        self.steps.append(
            f'<step s="{len(self.steps)}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" '
            f'dstbuf="{dst[0]}" dstoff="{dst[1]}" cnt="{count}" depid="{after[0]}" '
            f'deps="{after[1]}" hasdep="{int(awaited)}"/>'
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """A file: attributes of `<algo>`, chunks of each rank's buffers, and all ranks' blocks."""

    attributes: str
    chunks: tuple[int, int, int]
    ranks: Sequence[Sequence[Block]]

    def lines(self) -> Iterator[str]:
        """Yields the lines of the XML."""
        i, o, s = self.chunks
        yield f'<algo {self.attributes} ngpus="{len(self.ranks)}">'
        for rank, blocks in enumerate(self.ranks):
            yield f'  <gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">'
            for number, b in enumerate(blocks):
                yield f'    <tb id="{number}" send="{b.send}" recv="{b.recv}" chan="0">'
                yield from (f"      {step}" for step in b.steps)
                yield "    </tb>"
            yield "  </gpu>"
        yield "</algo>"


def _attributes(
    name: str, collective: str, chunks: int, protocol: str, *, both: bool, fifo: int = 0
) -> str:
    """Writes the attributes of `<algo>`. both: also for calls out of place; fifo: bytes that the
    FIFOs carry, 0 for any."""
    return (
        f'name="{name}" proto="{protocol}" nchannels="1" nchunksperloop="{chunks}" '
        f'coll="{collective}" inplace="1" outofplace="{int(both)}" minBytes="0" maxBytes="{fifo}"'
    )


def recursive_doubling(n: int) -> Schedule:
    """Makes an AllGather: in round k, ranks r and r ^ 2^k exchange the 2^k chunks that each of them
    has."""
    ranks = []
    for r in range(n):
        blocks = []
        for k in range(n.bit_length() - 1):
            peer, have = r ^ 1 << k, 1 << k
            mine, theirs = (x // have * have for x in (r, peer))
            block = Block(peer, peer)
            if k == 0:
                block.step("s", ("i", 0), ("o", r))
                block.step("r", ("i", 0), ("o", peer))
                block.step("cpy", ("i", 0), ("o", r), awaited=True)
            else:
                last = 2 if k == 1 else 1
                block.step("s", ("o", mine), ("o", mine), have, after=(k - 1, last))
                block.step("r", ("o", theirs), ("o", theirs), have, awaited=2 * have < n)
            blocks.append(block)
        ranks.append(blocks)
    name, fifo = "allgather_recursive_doubling", MOST_DOUBLING
    return Schedule(
        _attributes(name, "allgather", n, "Simple", both=True, fifo=fifo),
        (1, n, 0),
        ranks,
    )


def ring_allreduce(n: int) -> Schedule:
    """Makes an AllReduce around a ring, by one thread block per rank that combines, copies and
    sends on."""
    ranks = []
    for r in range(n):
        block = Block((r + 1) % n, (r - 1) % n)
        block.step("s", ("i", r), ("i", r))
        for hop in range(1, 2 * n - 1):
            c = (r - hop) % n
            if hop < n - 1:
                block.step("rrs", ("i", c), ("i", c))
            elif hop == n - 1:
                block.step("rrcs", ("i", c), ("o", c))
            else:
                block.step("rcs" if hop < 2 * n - 2 else "r", ("o", c), ("o", c))
        ranks.append([block])
    return Schedule(
        _attributes("allreduce_ring", "allreduce", n, "Simple", both=True), (n, n, 0), ranks
    )


def all_pairs_allreduce(n: int) -> Schedule:
    """Makes an AllReduce in two steps: every rank's chunk r to rank r, and the sum from there to
    all.

    Arrived chunks wait in scratch until the rank's last thread block has combined them.
    """
    ranks = []
    for r in range(n):
        peers = [p for p in range(n) if p != r]
        blocks = [Block(p, p) for p in peers]
        combine = Block(-1, -1)
        for slot, (p, block) in enumerate(zip(peers, blocks, strict=True)):
            there = r - (r > p)  # the slot of rank r at rank p
            block.step("s", ("i", p), ("s", there))
            block.step("r", ("s", slot), ("s", slot), awaited=True)
            combine.step("re", ("s", slot), ("i", r), after=(slot, 1), awaited=slot == n - 2)
            block.step("s", ("i", r), ("i", r), after=(n - 1, n - 2))
            block.step("r", ("i", p), ("i", p))
        ranks.append([*blocks, combine])
    return Schedule(
        _attributes("allreduce_all_pairs", "allreduce", n, "LL", both=False), (n, 0, n - 1), ranks
    )


def files() -> dict[str, str]:
    """Returns all files of examples/msccl by name."""
    written = {
        "allgather_recdoubling_n8": ("Recursive doubling AllGather", recursive_doubling(8)),
        "allreduce_ring_n8": ("Ring AllReduce, one thread block a rank", ring_allreduce(8)),
        "allreduce_allpairs_n8": ("All-pairs AllReduce", all_pairs_allreduce(8)),
    }
    found = {
        f"{name}.xml": ORIGIN.format(f"{title}, 8 ranks", "") + "\n".join(schedule.lines()) + "\n"
        for name, (title, schedule) in written.items()
    }
    options = Options(transport=Transport.STAGED, allocator="connection")
    for name, program, dialect, title in EXPORTED:
        plan = driver.compile_text(transfer.read(EXAMPLES / f"{program}.rccl"), options).plan
        text = export_msccl(plan, XmlOptions(dialect=dialect))
        origin = f" with its exporter, from examples/{program}.rccl"
        found[f"{name}.xml"] = ORIGIN.format(title, origin) + text
    return found


def main() -> None:
    """Writes all files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLES / "msccl"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
