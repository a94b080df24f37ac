"""MSCCL++ JSON export: runs on an executor that shares nothing with hccc, in any interleaving."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.mscclpp import execution_plan as mscclpp_json
from hccc.emit.mscclpp.operations import Fence, Move, MscclppBlock, OperationStream
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.lang.transfer import load as transfer
from hccc.testing import correct_programs
from tests.emit.mscclpp.executor import ExecutorMachine
from tests.health_checks import EVERY_CHECK
from tests.interop.expected import aliases, wanted
from tests.marks import LONG

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FIT = (
    "ring_allgather",
    "ring_allreduce",
    "ring_reducescatter",
    "rhd_allreduce",
    "direct_alltoall",
    "sendrecv",
)
LARGE = ("hm_allgather", "hm_allreduce", "hm_reducescatter")
MESH = """ResCCLAlgo(nRanks=4, OpType="Allreduce", AlgoName="hm_small"):
    for r in range(nRanks):
        for d in range(nRanks - 1):
            transfer((r + 1 + d) % nRanks, r, d, r, rrc)
    for r in range(nRanks):
        for d in range(nRanks - 1):
            transfer(r, (r + 1 + d) % nRanks, nRanks + d, r, recv)
"""
RELAY = """ResCCLAlgo(nRanks=3, OpType="Alltoall", AlgoName="relay"):
    for r in range(nRanks):
        for k in range(1, nRanks):
            to, by = (r + k) % nRanks, (r - k) % nRanks
            transfer(r, by, k, r * nRanks + to, recv)
            transfer(by, to, nRanks + k, r * nRanks + to, recv)
"""


def plan(name: str, **options: Any) -> Plan:
    """Compiles an example, direct by default, without proofs."""
    chosen = Options(prove=False, **{"transport": Transport.DIRECT, **options})
    return driver.compile_text(transfer.read(EXAMPLES / f"{name}.rccl"), chosen).plan


def executes(made: Plan, in_place: bool, seeds: range, text: str | None = None) -> str:
    """Checks that the export gives the collective's result, launch after launch; returns it."""
    text = text or mscclpp_json.dumps(made, in_place, domain=made.n_ranks)
    c, channels = made.collective, made.channels
    machine = ExecutorMachine(text, aliases(c, channels) if in_place else {})
    assert machine.plan["inplace"] == in_place
    inputs = [c.input_blocks(r) * c.chunks_per_block * channels for r in range(c.n_ranks)]
    for seed in seeds:
        machine.launch(inputs, seed)
        for r in range(c.n_ranks):
            for slot in range(c.output_blocks(r) * c.chunks_per_block * channels):
                assert machine.result(r, slot) == wanted(c, channels, r, slot)
    return text


@pytest.mark.parametrize("name", FIT)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fuse": "none", "allocator": "connection"},
        {"fuse": "full", "channels": 2},
    ],
    ids=["auto", "unfused", "two channels"],
)
def test_examples(name: str, options: dict[str, Any]) -> None:
    made = plan(name, **options)
    for in_place in (False, True):
        executes(made, in_place, range(3))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fuse"), [*product(LARGE, ("auto", "none"))])
def test_large_examples(name: str, fuse: str) -> None:
    made = plan(name, fuse=fuse)
    for in_place in (False, True):
        executes(made, in_place, range(in_place, in_place + 1))


@pytest.mark.parametrize("fuse", ["none", "reduce", "full"])
def test_mesh(fuse: str) -> None:
    made = driver.compile_text(Source("mesh.rccl", MESH), Options(fuse=fuse)).plan
    for in_place in (False, True):
        text = executes(made, in_place, range(10))
        blocks = [b for g in json.loads(text)["gpus"] for b in g["threadblocks"]]
        names = {op["name"] for b in blocks for op in b["ops"]}
        assert names >= {"none": {"rre", "put"}, "reduce": {"rre", "put"}, "full": {"rres"}}[fuse]


@pytest.mark.parametrize("fuse", ["none", "reduce", "full"])
def test_staged_blocks_follow_the_scratch_memory(fuse: str) -> None:
    """Every chunk goes by the third rank, which needs scratch memory; in place, sends are staged
    beside it."""
    made = driver.compile_text(Source("relay.rccl", RELAY), Options(fuse=fuse, channels=2)).plan
    assert min(*made.scratch_slots, *made.stage_slots) > 0
    for in_place in (False, True):
        executes(made, in_place, range(6))


def exported_random(data: st.DataObject) -> None:
    program = data.draw(correct_programs())
    fuse = data.draw(st.sampled_from(["none", "reduce", "full"]))
    allocator = data.draw(st.sampled_from(["state", "connection"]))
    most = data.draw(st.sampled_from([None, 1, 2]))
    options = Options(fuse=fuse, allocator=allocator, max_sms=most, transport=Transport.DIRECT)
    made = driver.compile_program(program, options).plan
    try:
        executes(made, data.draw(st.booleans()), range(2))
    except UserError as error:
        rooted = made.collective.op not in mscclpp_json.COLLECTIVES
        assert error.problem.code == ("E532" if rooted else "E533")


def thorough(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=EVERY_CHECK,
        derandomize=True,
    )


@thorough(16)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    exported_random(data)


@pytest.mark.slow
@thorough(250 * LONG)
@given(st.data())
def test_many_random_programs(data: st.DataObject) -> None:
    exported_random(data)


@pytest.mark.parametrize(
    ("first", "second", "fenced"),
    [
        (("i", "o"), ("i", "s"), False),
        (("i", "o"), ("o", "s"), True),  # read after write
        (("o", "s"), ("i", "o"), True),  # write after read
        (("i", "o"), ("s", "o"), True),  # write after write
    ],
)
def test_moves_that_conflict_are_fenced(
    first: tuple[str, str], second: tuple[str, str], fenced: bool
) -> None:
    block = MscclppBlock(0)
    stream = OperationStream(block, [0])
    for src, dst in (first, second):
        stream.move(Move("copy", ((0, src, 0),), ((0, dst, 0),)))
    assert any(isinstance(op, Fence) for op in block.ops) == fenced


def test_ranks_that_others_do_everything_for() -> None:
    """A rank without thread blocks gets one, that says when its memory may be used."""
    body = "    transfer(1, 0, 0, 0, rrc)\n    transfer(0, 1, 1, 0, recv)\n"
    header = 'ResCCLAlgo(nRanks=2, OpType="Allreduce", nChunks=1):\n'
    made = driver.compile_text(Source("pull.rccl", header + body), Options()).plan
    assert made.n_tb.tolist()[1] == 0
    for in_place in (False, True):
        executes(made, in_place, range(20))


@pytest.mark.parametrize("name", ["signal", "wait", "nop", "sem_release", "sem_acquire"])
def test_nothing_is_written_in_vain(name: str) -> None:
    """Without any one of some operations that order, some interleaving shows it."""
    made = driver.compile_text(
        Source("mesh.rccl", MESH), Options(fuse="none", allocator="connection")
    ).plan
    text = mscclpp_json.dumps(made, True, domain=4)
    where = [
        (g, b, o)
        for g, gpu in enumerate(json.loads(text)["gpus"])
        for b, block in enumerate(gpu["threadblocks"])
        for o, op in enumerate(block["ops"])
        if op["name"] == name
    ]
    assert where
    for g, b, o in where[:: max(1, len(where) // 6)]:
        damaged = json.loads(text)
        del damaged["gpus"][g]["threadblocks"][b]["ops"][o]
        with pytest.raises((AssertionError, KeyError)):
            executes(made, True, range(60), json.dumps(damaged))


def refused(code: str, words: str, made: Plan, **options: Any) -> None:
    """Checks that the export fails with `code` and `words`."""
    with pytest.raises(UserError) as caught:
        mscclpp_json.dumps(made, options.pop("in_place", True), **options)
    assert caught.value.problem.code == code
    assert words in str(caught.value)


def test_what_the_executor_cannot_do() -> None:
    ring = plan("ring_allreduce")
    staged = plan("ring_allreduce", transport=Transport.STAGED)
    refused("E530", "--transport direct", staged)
    refused("E532", "Broadcast", plan("binomial_broadcast"))
    refused("E532", "sum only", ring, op="max")
    refused("E532", "sum only", ring, op="avg")
    refused("E460", "does not serve", replace(ring, in_place=False))
    refused("E526", "identifier", replace(ring, name="a b"))
    refused("E534", "within reach", plan("hm_allgather"))
    for op in OpType:
        assert (op in mscclpp_json.COLLECTIVES) == (
            op.value
            in {
                "Allreduce",
                "Allgather",
                "Reducescatter",
                "Alltoall",
                "SendRecv",
            }
        )


@pytest.mark.parametrize("side", ["src", "dst"])
def test_what_no_operation_does(side: str) -> None:
    """A sum has one source of its own rank, and one destination there."""
    made = driver.compile_text(Source("mesh.rccl", MESH), Options(fuse="full")).plan
    operands = getattr(made, side)
    row = int(np.flatnonzero((made.src.counts() > 1) & (operands.counts() > 1))[0])
    rank = operands.rank.copy()
    second = operands.ptr[row] + 1
    assert rank[second] != made.rank_of()[row]
    rank[second] = made.rank_of()[row]
    change: dict[str, Any] = {side: replace(operands, rank=rank)}
    many = f"{made.src.counts()[row]} sources, {made.dst.counts()[row]} destinations"
    refused("E531", f"of rank {rank[second]} does: {many}", replace(made, **change))


def test_limits_of_a_thread_block() -> None:
    ring = (
        'ResCCLAlgo(nRanks={n}, OpType="Allgather"):\n    for r in range(nRanks):\n'
        "        for s in range(nRanks - 1):\n"
        "            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, recv)\n"
    )
    long = driver.compile_text(Source("r.rccl", ring.format(n=40)), Options()).plan
    refused("E533", "operations", long)
    wide = MESH.replace("nRanks=4", "nRanks=18")
    few = Options(max_sms=1, fuse="none")
    refused("E533", "of rank 0", driver.compile_text(Source("m.rccl", wide), few).plan)
