"""MSCCL XML export: runs on a runtime that shares nothing with hccc, and reads back the same."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.msccl import xml as msccl_xml
from hccc.interop.export_msccl import XmlOptions, export_msccl
from hccc.ir.collective import OpType
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.lang.transfer import load as transfer
from hccc.testing import correct_programs
from tests.health_checks import EVERY_CHECK
from tests.interop import corpus
from tests.interop import fifo_model as runtime
from tests.interop.expected import aliases, wanted
from tests.marks import LONG
from tests.passes import textbook

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.rccl"))
STAGED = Options(transport=Transport.STAGED, allocator="connection")
LARGE = {"hm_allgather", "hm_allreduce", "hm_reducescatter"}
FEW = [p for p in EXAMPLES if p.stem not in LARGE]


@cache
def staged(path: Path, channels: int = 1) -> Plan:
    """Compiles an example as MSCCL can run it."""
    options = Options(
        transport=Transport.STAGED, allocator="connection", channels=channels, prove=False
    )
    return driver.compile_text(transfer.read(path), options).plan


def executes(text: str, plan: Plan, dialect: str, in_place: bool, seed: int) -> None:
    """Checks that the file obeys `dialect`, gives the result on the independent runtime, and waits
    for nothing twice."""
    _, again = corpus.verdict(text)
    assert (again.hangs, again.deadlock, again.race, again.result) == (False, None, None, None)
    c, channels = plan.collective, plan.channels
    algo = runtime.load(text, dialect)
    for block in (block for gpu in algo.children for block in gpu.children):
        waited: dict[int, int] = {}
        for step in block.children:
            if step["depid"] >= 0:
                assert step["deps"] > waited.get(step["depid"], -1), "a wait is repeated"
                waited[step["depid"]] = step["deps"]
    inputs = [c.input_blocks(r) * c.chunks_per_block * channels for r in range(c.n_ranks)]
    alias = aliases(c, channels) if in_place else {}
    machine = runtime.run(algo, inputs, alias, seed)
    for r in range(c.n_ranks):
        for slot in range(c.output_blocks(r) * c.chunks_per_block * channels):
            assert machine.read(r, "o", slot) == wanted(c, channels, r, slot)


def export(plan: Plan, dialect: str, in_place: bool, protocol: str = "Simple") -> str | None:
    """Exports the file, or returns None where the dialect has no such collective."""
    try:
        return export_msccl(plan, XmlOptions(dialect, protocol, in_place))
    except UserError as error:
        assert error.problem.code == "E522"
        return None


@pytest.mark.quick(3)
@pytest.mark.parametrize("path", FEW, ids=lambda p: p.stem)
@pytest.mark.parametrize("channels", [3, 1])
def test_examples_run_on_an_independent_runtime(path: Path, channels: int) -> None:
    plan = staged(path, channels)
    files = 0
    for dialect, in_place in product(msccl_xml.DIALECTS, (False, True)):
        text = export(plan, dialect, in_place)
        if text is not None:
            executes(text, plan, dialect, in_place, seed=7 * channels + in_place)
            files += 1
    assert files >= 1


def test_connections_with_several_blocks_have_several_channels() -> None:
    """Two of MSCCL's channels a connection, one for each stage, times two channels of the plan."""
    options = Options(transport=Transport.STAGED, allocator="stage", channels=2)
    plan = driver.compile_program(textbook.hm_allreduce(2, 2), options).plan
    text = export_msccl(plan, XmlOptions())
    assert {int(c) for c in re.findall(r'chan="(\d+)"', text)} == {0, 1, 2, 3}
    executes(text, plan, "executor", True, 5)


@pytest.mark.slow
def test_a_channel_carries_32_blocks_of_a_rank() -> None:
    """A root that sends to 33 ranks needs a second one."""
    plan = driver.compile_program(textbook.flat_broadcast(34), STAGED).plan
    text = export_msccl(plan, XmlOptions())
    sends = re.findall(r'<tb id="\d+" send="\d+" recv="-1" chan="(\d+)"', text)
    assert sorted(map(sends.count, set(sends))) == [1, 32]


def test_staged_slots_lie_behind_scratch() -> None:
    """In place, Alltoall copies send slots aside; here one block takes a detour through scratch."""
    text = 'ResCCLAlgo(nRanks=3, OpType="Alltoall", nChunks=9):\n'
    for src, dst, step, chunk in (
        (0, 1, 0, 2),
        (1, 2, 1, 2),
        (0, 1, 0, 1),
        (1, 0, 0, 3),
        (1, 2, 0, 5),
        (2, 0, 0, 6),
        (2, 1, 0, 7),
    ):
        text += f"    transfer({src}, {dst}, {step}, {chunk}, recv)\n"
    plan = driver.compile_text(Source("detour.rccl", text), STAGED).plan
    assert plan.scratch_slots[1] and plan.stage_slots[1]
    for dialect, in_place, seed in product(msccl_xml.DIALECTS, (False, True), range(5)):
        made = export_msccl(plan, XmlOptions(dialect, in_place=in_place))
        executes(made, plan, dialect, in_place, seed)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.parametrize("protocol", msccl_xml.PROTOCOLS)
def test_every_example_and_protocol(path: Path, protocol: str) -> None:
    plan = staged(path, 2)
    files = 0
    for dialect, in_place in product(msccl_xml.DIALECTS, (False, True)):
        text = export(plan, dialect, in_place, protocol=protocol)
        if text is not None:
            executes(text, plan, dialect, in_place, seed=3)
            files += 1
    assert files >= 1


def which_dialects(op: OpType) -> list[str]:
    """Lists the dialects that have `op`."""
    return [d.name for d in msccl_xml.DIALECTS.values() if op in d.collectives]


def random_programs(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=EVERY_CHECK,
        derandomize=True,
    )


def exported_random(data: st.DataObject) -> None:
    program = data.draw(correct_programs())
    plan = driver.compile_program(program, STAGED).plan
    c = plan.collective
    dialect = data.draw(st.sampled_from(which_dialects(c.op) or ["msccl"]))
    in_place = data.draw(st.booleans()) and c.op is not OpType.SENDRECV
    if c.root or c.demand:
        with pytest.raises(UserError, match="E522"):
            export_msccl(plan, XmlOptions(dialect, in_place=in_place))
        return
    text = export_msccl(plan, XmlOptions(dialect, in_place=in_place))
    executes(text, plan, dialect, in_place, data.draw(st.integers(0, 99)))


@random_programs(40)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    exported_random(data)


@pytest.mark.slow
@random_programs(600 * LONG)
@given(st.data())
def test_many_random_programs(data: st.DataObject) -> None:
    exported_random(data)


def round_trip(entry: dict[str, Any]) -> None:
    """Checks that an imported file, exported and read again, keeps its verdicts."""
    text = (corpus.ROOT / entry["file"]).read_text()
    plan, before = corpus.verdict(text, entry["file"])
    in_place = bool(int(entry["inplace"]))
    for dialect in which_dialects(plan.collective.op):
        again = msccl_xml.dumps(
            plan, dialect, in_place, protocol=entry["proto"], largest=before.largest
        )
        algo = runtime.load(again, dialect)
        assert corpus.verdict(again)[1] == before
        end = algo["maxBytes"] - (dialect == "msccl")
        scratch = any(g["s_chunks"] for g in algo.children)
        if before.largest is not None:
            assert end <= before.largest
            assert end == before.largest or (scratch and dialect == "msccl")


@pytest.mark.quick(2)
@pytest.mark.skipif(not corpus.entries(), reason=corpus.MISSING)
@pytest.mark.parametrize("entry", corpus.small()[::3], ids=lambda e: Path(e["file"]).stem)
def test_corpus_round_trip(entry: dict[str, Any]) -> None:
    round_trip(entry)


@pytest.mark.slow
@pytest.mark.skipif(not corpus.entries(), reason=corpus.MISSING)
@pytest.mark.parametrize("entry", corpus.entries(), ids=lambda e: Path(e["file"]).stem)
def test_whole_corpus_round_trip(entry: dict[str, Any]) -> None:
    round_trip(entry)


@pytest.mark.parametrize("path", sorted(corpus.OWN.glob("*.xml")), ids=lambda p: p.stem)
def test_own_files_round_trip(path: Path) -> None:
    plan, before = corpus.verdict(path.read_text(), path.name)
    for dialect in which_dialects(plan.collective.op):
        again = msccl_xml.dumps(plan, dialect, plan.modes[-1])
        runtime.load(again, dialect)
        after = corpus.verdict(again)[1]
        assert (after.race, after.result) == (before.race, before.result)
