"""A plan that the file format or the runtimes' tables cannot hold is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.msccl import xml as msccl_xml
from hccc.emit.msccl.channels import channels
from hccc.emit.msccl.steps import MscclBlock, MscclStep, _part_reductions
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.interop.msccl_plan import _identifier
from hccc.ir.names import IDENTIFIER, objection
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.lang.transfer import load as transfer
from tests.interop import corpus
from tests.interop import fifo_model as runtime
from tests.marks import slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HEADER = (
    'ResCCLAlgo(nRanks={n}, nChannels={k}, nWarps=16, AlgoName="x", OpType="{op}", '
    "GPUPerNode={n}, NICPerNode={n}{more}):\n"
)
RING = """    for r in range(nRanks):
        for s in range(nRanks - 1):
            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, rrc)
    for r in range(nRanks):
        for s in range(nRanks - 1):
            transfer(r, (r + 1) % nRanks, nRanks - 1 + s, (r + 1 - s) % nRanks, recv)
"""
DIRECT_GATHER = """    for r in range(nRanks):
        for d in range(nRanks - 1):
            transfer(r, (r + 1 + d) % nRanks, d, r, recv)
"""
ONE = ", nChunks=1"


MSCCL = Options(transport=Transport.STAGED, allocator="connection", prove=False)


def plan(
    body: str, op: str, n: int, *, k: int = 1, more: str = "", options: Options = MSCCL
) -> Plan:
    """Compiles a program for MSCCL, unless `options` say otherwise."""
    text = HEADER.format(n=n, k=k, op=op, more=more) + body
    return driver.compile_text(Source("x.rccl", text), options).plan


def refused(
    code: str,
    words: str,
    made: Plan,
    dialect: str = "msccl",
    *,
    protocol: str = "Simple",
    largest: int | None = None,
    op: str = "sum",
) -> None:
    """Checks that the export fails with `code` and `words`."""
    with pytest.raises(UserError) as caught:
        msccl_xml.dumps(made, dialect, True, protocol=protocol, largest=largest, op=op)
    assert caught.value.problem.code == code
    assert words in str(caught.value)


def test_direct_plans_are_told_what_to_do() -> None:
    direct = plan(RING, "Allreduce", 4, options=replace(MSCCL, transport=Transport.DIRECT))
    refused("E520", "--transport staged --allocator connection", direct)


def test_blocks_with_several_peers() -> None:
    body = "    transfer(0, 1, 0, 0, recv)\n    transfer(0, 2, 3, 0, recv)\n"
    one = plan(body, "Broadcast", 3, more=", nChunks=1", options=replace(MSCCL, max_sms=1))
    refused("E521", "--allocator connection", one)


def test_averages_are_not_reductions_of_the_runtimes() -> None:
    refused("E522", "not avg", plan(RING, "Allreduce", 4), op="avg")


def test_other_roots() -> None:
    body = "    transfer(1, 0, 0, 0, recv)\n"
    refused("E522", "rank 0", plan(body, "Broadcast", 2, more=", nChunks=1, Root=1"))


@pytest.mark.parametrize(
    ("op", "dialect"), [("Gather", "msccl"), ("SendRecv", "executor"), ("Scatter", "msccl")]
)
def test_collectives_that_a_dialect_lacks(op: str, dialect: str) -> None:
    name = {"Gather": "direct_gather", "Scatter": "direct_scatter", "SendRecv": "sendrecv"}[op]
    made = driver.compile_text(
        transfer.read(EXAMPLES / f"{name}.rccl"),
        Options(transport=Transport.STAGED, allocator="connection"),
    ).plan
    refused("E522", f"no {op}", made, dialect)


def test_options() -> None:
    made = plan(RING, "Allreduce", 4)
    refused("E410", "dialect", made, "nccl")
    refused("E410", "protocol", made, protocol="LL64")
    with pytest.raises(UserError, match="in place or out of place"):
        msccl_xml.dumps(made, "msccl", None)
    refused("E460", "does not serve", replace(made, in_place=False))
    refused("E303", "hangs", made, largest=0)
    refused("E526", "identifier", replace(made, name="2D"))
    refused("E526", "identifier", replace(made, name='x" evil="1'))


@given(st.text(max_size=80))
def test_any_name_of_a_file_becomes_a_plans(name: str) -> None:
    made = _identifier(name)
    assert IDENTIFIER.fullmatch(made) and len(made) <= 63 and objection(made) is None


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("ring2", "ring2"),
        ("A ring, of 2 ranks!", "A_ring_of_2_ranks"),
        ("2D ring", "a2D_ring"),
        ("hccc_ring", "msccl_hccc_ring"),
        ("", "msccl"),
        ("_" * 70 + "x" * 70, "x" * 63),
    ],
)
def test_a_name_changes_no_more_than_it_must(name: str, made: str) -> None:
    assert _identifier(name) == made


def test_one_file_for_both_kinds_of_call() -> None:
    text = export_msccl(plan(RING, "Allreduce", 4), XmlOptions(in_place=None))
    algo = runtime.load(text, "executor")
    assert (algo["inplace"], algo["outofplace"]) == (1, 1)
    with pytest.raises(UserError, match="copies differently"):
        msccl_xml.dumps(plan(DIRECT_GATHER, "Allgather", 3), "executor", None)


@pytest.mark.parametrize(
    ("n", "dialect", "fits"),
    [
        (32, "executor", True),
        (34, "executor", False),
        (34, "msccl", True),
        slow(129, "msccl", True),
        slow(130, "msccl", False),
    ],
)
def test_steps_of_a_block(n: int, dialect: str, fits: bool) -> None:
    """A ring AllReduce sends 2 (n - 1) messages in one block."""
    made = plan(RING, "Allreduce", n)
    if fits:
        runtime.load(msccl_xml.dumps(made, dialect, True), dialect)
    else:
        refused("E523", "steps in", made, dialect)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("n", "k", "dialect", "what"),
    [
        (34, 1, "executor", "thread blocks at rank 0"),  # 33 that send, 33 that receive
        (110, 1, "msccl", "thread blocks at rank 0"),
        (4, 33, "msccl", "channels"),
    ],
)
def test_blocks_and_channels(n: int, k: int, dialect: str, what: str) -> None:
    refused("E523", what, plan(DIRECT_GATHER, "Allgather", n, k=k), dialect)


@pytest.mark.slow
def test_a_thread_block_for_each_stage_can_be_too_many() -> None:
    """120 of them: the msccl dialect takes 216, the other 64."""
    made = driver.compile_text(
        transfer.read(EXAMPLES / "hm_allreduce.rccl"),
        Options(transport=Transport.STAGED, allocator="stage", prove=False),
    ).plan
    runtime.load(msccl_xml.dumps(made, "msccl", True), "msccl")
    refused("E523", "120 thread blocks at rank 0", made, "executor")
    refused("E523", "--allocator state or connection", made, "executor")


@pytest.mark.parametrize(
    ("op", "body", "more"),
    [
        ("Allgather", DIRECT_GATHER, ""),
        ("Broadcast", "    for r in range(1, nRanks):\n        transfer(0, r, 0, 0, recv)\n", ONE),
    ],
)
def test_many_peers_take_more_channels(op: str, body: str, more: str) -> None:
    """A runtime holds 32 blocks of a rank that send on a channel, and 32 that receive."""
    made = plan(body, op, 40, more=more)
    assert runtime.load(msccl_xml.dumps(made, "msccl", True), "msccl")["nchannels"] == 2


def test_a_connection_has_one_block_at_each_end() -> None:
    blocks = [MscclBlock(0, row, send=0) for row in (0, 1)]
    with pytest.raises(UserError, match="two thread blocks of rank 0 serve one conn") as caught:
        channels(plan(RING, "Allreduce", 2), [blocks])
    assert caught.value.problem.code == "E521"


@pytest.mark.slow
def test_offsets() -> None:
    body = "    for c in range(nChunks):\n        transfer(0, 1, c, c, recv)\n"
    fits = plan(body, "Broadcast", 2, k=32, more=", nChunks=100")
    runtime.load(msccl_xml.dumps(fits, "msccl", True), "msccl")
    refused("E523", "chunks in a buffer", plan(body, "Broadcast", 2, k=32, more=", nChunks=1025"))
    refused("E523", "steps in", plan(body, "Broadcast", 2, k=32, more=", nChunks=1024"))


def test_elements_of_a_rank() -> None:
    body = "    for c in range(nChunks):\n        transfer(0, 1, c, c, recv)\n"
    for k, chunks in ((32, 130), (23, 177)):  # the others: 1 + 2 ranks + k · (1 + steps) = 4097
        refused("E523", "elements", plan(body, "Broadcast", 2, k=k, more=f", nChunks={chunks}"))


GATHERED = "    for r in range(1, nRanks):\n        transfer(r, 0, r, 0, rrc)\n"


def test_blocks_that_others_wait_for_come_first() -> None:
    """The runtimes know the target of a wait by 8 bits; blocks may number up to 216."""
    body = "    for r in range(1, nRanks):\n        transfer(0, r, r, 0, recv)\n"
    body += "    for r in range(1, nRanks):\n        transfer(r, 0, nRanks + r, r, recv)\n"
    body += "    for r in range(1, nRanks):\n        for d in range(1, nRanks - 1):\n"
    body += "            transfer(0, 1 + (r - 1 + d) % (nRanks - 1), 3 * nRanks + d, r, recv)\n"
    text = msccl_xml.dumps(plan(body, "Allgather", 18, k=6), "msccl", True)
    targets = [
        step["depid"]
        for block in runtime.load(text, "msccl").children[0].children
        for step in block.children
    ]
    assert 17 * 6 - 1 <= max(targets) <= 127


def test_targets_of_waits() -> None:
    body = GATHERED + "    for r in range(nRanks - 1):\n"
    body += "        transfer(r, r + 1, nRanks + r, 0, recv)\n"
    star = plan(body, "Allreduce", 23, k=6, more=", nChunks=1")  # 22 that receive, in 6 channels
    refused("E523", "others wait for", star)


def windows(
    dialect: str, *, largest: int | None = None, max_bytes: int | None = None
) -> tuple[int, int]:
    algo = runtime.load(
        msccl_xml.dumps(
            plan(RING, "Allreduce", 4), dialect, True, largest=largest, max_bytes=max_bytes
        ),
        dialect,
    )
    return algo["minBytes"], algo["maxBytes"]


def test_size_windows() -> None:
    """msccl's end is exclusive, and it has no word for none; the executor's is inclusive."""
    assert windows("msccl", largest=1000) == (0, 1001)
    assert windows("executor", largest=1000) == (0, 1000)
    assert windows("executor") == (0, 0)
    assert windows("msccl") == (0, 2**40 + 1)
    assert windows("msccl", largest=1000, max_bytes=500) == (0, 501)
    assert windows("executor", max_bytes=500) == (0, 500)


def test_scratch_is_paid_for_up_to_the_window() -> None:
    """microsoft/msccl allocates scratch for maxBytes when it loads the file (init.cc:814)."""
    made, _ = corpus.verdict((corpus.OWN / "allreduce_scratch_n3.xml").read_text())
    algo = runtime.load(msccl_xml.dumps(made, "msccl", True), "msccl")
    assert algo["maxBytes"] == 2**27


def test_the_window_is_what_the_fifos_carry() -> None:
    made, verdict = corpus.verdict((corpus.OWN / "allgather_deep_n2.xml").read_text())
    algo = runtime.load(export_msccl(made, XmlOptions(in_place=None)), "executor")
    assert algo["maxBytes"] == verdict.largest == 12 * (2**21 // 3)
    again = runtime.load(export_msccl(made, XmlOptions(protocol="LL", in_place=None)), "executor")
    assert again["maxBytes"] == 0  # 8 messages of LL are in flight: one for each of the 6 chunks


@pytest.mark.parametrize("reductions", [1, 15, 16, 17, 40])
def test_runs_of_reductions_end_before_the_runtimes_array_does(reductions: int) -> None:
    """Successive `re` into one place become one in the runtimes, of at most 16 sources."""
    steps = "".join(
        f'<step s="{s}" type="re" srcbuf="i" srcoff="{s}" dstbuf="o" dstoff="0" cnt="1" '
        'depid="-1" deps="-1" hasdep="0"/>'
        for s in range(reductions)
    )
    text = '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="40" ngpus="2" '
    text += 'coll="custom" inplace="0">'
    for r in (0, 1):
        text += f'<gpu id="{r}" i_chunks="40" o_chunks="40" s_chunks="0">'
        text += f'<tb id="0" send="-1" recv="-1" chan="0">{steps}</tb></gpu>'
    made, _ = corpus.verdict(text + "</algo>")
    algo = runtime.load(msccl_xml.dumps(made, "msccl", False), "msccl")
    ends = [s["hasdep"] for s in algo.children[0].children[0].children]
    assert len(ends) == reductions
    runs = "".join(map(str, ends)).split("1")
    assert max(map(len, runs)) <= 15 or reductions <= 16
    assert np.sum(ends) == (reductions - 1) // 16


def test_waits_name_steps_as_the_file_numbers_them() -> None:
    """A step with three waits is two nops and itself: others wait for it by its number, 2."""
    steps = [MscclStep("cpy", ("i", 0), ("o", 0), 1, range(k, k + 1)) for k in range(3)]
    steps[0].waits = {1: 0, 2: 0, 3: 0}
    steps[2].waits = {1: 1, 2: 1}
    block = MscclBlock(0, 0, steps=steps)
    assert [block.position(k) for k in range(3)] == [2, 3, 5]
    assert block.length() == 6


@pytest.mark.parametrize("many", [1, 15, 16, 17, 33])
def test_the_runtimes_fuse_sixteen_reductions_at_most(many: int) -> None:
    """A step that signals ends a run of them; the last needs none."""
    steps = [MscclStep("re", ("s", k), ("o", 0), 1, range(k, k + 1)) for k in range(many)]
    _part_reductions(steps)
    assert [k for k, step in enumerate(steps) if step.signals] == [*range(15, many - 1, 16)]
