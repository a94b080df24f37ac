"""The kinds of wrong XML that msccl-tools writes and its Check() passes (msccl-formats
§8), each small, beside the XML it should have written."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import UserError
from tests.interop import corpus

Row = tuple[str, tuple[str, int], tuple[str, int], int]  # type, src, dst, count


def step(s: int, row: Row) -> str:
    kind, src, dst, count = row
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" dstbuf="{dst[0]}" '
        f'dstoff="{dst[1]}" cnt="{count}" depid="-1" deps="-1" hasdep="0"/>'
    )


def algo(
    coll: str, chunks: int, gpus: list[list[tuple[int, int, list[Row]]]], scratch: int = 0
) -> str:
    """Returns a line of XML. gpus[r]: a list of (send, recv, steps); block b is on channel b."""
    parts = [
        f'<algo name="x" proto="Simple" nchannels="2" nchunksperloop="{chunks}" '
        f'ngpus="{len(gpus)}" coll="{coll}" inplace="1">'
    ]
    for r, blocks in enumerate(gpus):
        parts.append(f'<gpu id="{r}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">')
        for b, (send, recv, rows) in enumerate(blocks):
            parts.append(f'<tb id="{b}" send="{send}" recv="{recv}" chan="{b}">')
            parts += [step(s, row) for s, row in enumerate(rows)]
            parts.append("</tb>")
        parts.append("</gpu>")
    return "".join([*parts, "</algo>"])


def remote_operand(local: int) -> str:
    """Makes rank 1 add rank 0's slot 0 to its own slot 1 and send the sum back.

    msccl-tools writes the remote slot (0) as the local operand; the runtimes read it as local.
    Slot 0 of both is summed by plain exchange, so that only this step differs.
    """
    zero: list[Row] = [("s", ("i", 1), ("i", 1), 1), ("r", ("i", 1), ("i", 1), 1)]
    one: list[Row] = [("rrc", ("i", local), ("i", 1), 1), ("s", ("i", 1), ("i", 1), 1)]
    more_zero: list[Row] = [("rrc", ("i", 0), ("i", 0), 1), ("s", ("i", 0), ("i", 0), 1)]
    more_one: list[Row] = [("s", ("i", 0), ("i", 0), 1), ("r", ("i", 0), ("i", 0), 1)]
    return algo(
        "allreduce", 2, [[(1, 1, zero), (1, 1, more_zero)], [(0, 0, one), (0, 0, more_one)]]
    )


def fused_scratch(stored: int) -> str:
    """Makes rank 1 keep a copy in scratch slot 1 while passing it on, then copy it to its buffer.

    msccl-tools' fused rcs keeps the destination of the *next* rank, slot 0 there.
    """
    zero: list[Row] = [("s", ("i", 0), ("s", 1), 1)]
    one: list[Row] = [("rcs", ("i", 0), ("s", stored), 1), ("cpy", ("s", 1), ("o", 0), 1)]
    two: list[Row] = [("r", ("s", 1), ("s", 0), 1), ("cpy", ("s", 0), ("o", 0), 1)]
    return algo("broadcast", 1, [[(1, -1, zero)], [(2, 0, one)], [(-1, 1, two)]], scratch=2)


def replicated(count: int) -> str:
    """Makes two interleaved instances of a schedule that moves two chunks: (0, 2) and (1, 3).

    msccl-tools keeps the count of 2, which now means (0, 1) and (1, 2).
    """
    starts = (0, 1)
    gpus: list[list[tuple[int, int, list[Row]]]] = []
    for r in (0, 1):
        blocks = []
        for instance in starts:
            at = [instance] if count == 2 else [instance, instance + 2]
            mine, other = 4 * r, 4 * (1 - r)
            rows: list[Row] = []
            for a in at:
                rows += [("s", ("o", mine + a), ("o", mine + a), count)]
                rows += [("r", ("o", other + a), ("o", other + a), count)]
            blocks.append((1 - r, 1 - r, rows))
        gpus.append(blocks)
    return algo("allgather", 8, gpus).replace('i_chunks="8"', 'i_chunks="4"')


KINDS = {
    "operand of the remote rank": (remote_operand(1), remote_operand(0), "E306"),
    "fused store into the next rank's scratch": (fused_scratch(1), fused_scratch(0), "E518"),
    "interleaved replication of counts": (replicated(1), replicated(2), "E307"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_refused_where_check_passes(kind: str) -> None:
    right, wrong, code = KINDS[kind]
    _, good = corpus.verdict(right)
    assert (good.deadlock, good.race, good.result) == (None, None, None)
    try:
        _, bad = corpus.verdict(wrong)
        assert bad.result == code
    except UserError as error:  # unwritten slots are refused before any proof
        assert error.problem.code == code


def test_replication_races_too() -> None:
    """Both instances write chunk 1 of the other rank."""
    assert corpus.verdict(KINDS["interleaved replication of counts"][1])[1].race == "E304"


def test_two_blocks_on_one_connection() -> None:
    """Each counts its messages alone (kind 5)."""
    text = remote_operand(1).replace('chan="1"', 'chan="0"')
    with pytest.raises(UserError, match="E514"):
        corpus.verdict(text)


@pytest.mark.parametrize(
    ("protocol", "chunks", "largest"),
    [
        ("Simple", 2, None),
        ("Simple", 3, 2 * 3 * (2**21 // 2)),
        ("Simple", 8, 2 * 8 * (2**21 // 4)),
        ("LL", 8, None),
        ("LL", 17, 2 * 17 * (2**15 // 3)),
        ("LL128", 8, None),
        ("LL128", 9, 2 * 9 * (576_000 // 2)),
    ],
)
def test_fifo_deadlock(protocol: str, chunks: int, largest: int | None) -> None:
    """Send k, then receive k, in one block (kind 4): 2 messages of Simple are in flight, 8 of the
    others."""
    gpus: list[list[tuple[int, int, list[Row]]]] = [
        [
            (
                1 - r,
                1 - r,
                [
                    ("s", ("o", chunks * r), ("o", 0), chunks),
                    ("r", ("o", 0), ("o", chunks * (1 - r)), chunks),
                ],
            )
        ]
        for r in (0, 1)
    ]
    text = algo("allgather", 2 * chunks, gpus).replace("Simple", protocol)
    _, found = corpus.verdict(text)
    assert (found.largest, found.hangs, found.result) == (largest, False, None)


def _waits(block: int, step: int, signals: bool = True) -> str:
    """Makes the last step of a block wait, and its first signal, in a file that is right."""
    good = (corpus.OWN / "allreduce_pair_n2.xml").read_text()
    head, first, middle, last, rest = good.split("<step", 4)
    last = last.replace('depid="-1" deps="-1"', f'depid="{block}" deps="{step}"')
    if signals:
        first = first.replace('hasdep="0"', 'hasdep="1"')
    return "<step".join([head, first, middle, last, rest])


def test_a_block_may_wait_for_a_step_before() -> None:
    """Which changes nothing; for one that comes later, or signals nothing, it would for ever."""
    plan, found = corpus.verdict(_waits(0, 0))
    assert found == corpus.verdict(_waits(-1, -1))[1] and not plan.waits.counts()[2:].any()
    for wrong in (_waits(0, 0, signals=False), _waits(0, 1)):
        with pytest.raises(UserError, match=r"E516.*this waits for ever"):
            corpus.verdict(wrong)
