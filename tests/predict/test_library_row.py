"""`--vs`: the time of the library of a cluster's devices, beside a plan's."""

from __future__ import annotations

import json

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.inputs import parse_cluster
from hccc.driver.options import Options
from hccc.predict.nccl.rows import VendorLibrary
from hccc.predict.simulation import Call, Simulation, simulate_sizes

PAIR = """
ResCCLAlgo(nRanks=2, nChannels=1, OpType="Allgather", GPUPerNode=2):
    transfer(0, 1, 0, 0, recv)
    transfer(1, 0, 0, 1, recv)
"""
LINKS = "\ndefine node1 = 2\ndefine bandwidth = {mesh => [((0,1) -> 40)]}"
OPTIONS = Options(tune="off")


def beside(device: str, library: VendorLibrary | None = None, call: Call = Call()) -> Simulation:  # noqa: B008
    topology = parse_cluster(Source("pair", f"define device = {device}{LINKS}"))
    compiled = driver.compile_text(Source("pair.rccl", PAIR), OPTIONS, topology)
    return simulate_sizes(compiled, topology, [0, 1 << 20], call, OPTIONS, library)


def test_the_library_of_the_devices_has_a_row_of_each_size() -> None:
    found = beside("H100")
    nothing, row = found.library
    assert nothing is None and row is not None
    assert row.size == 1 << 20 and row.library is VendorLibrary.NCCL
    told = json.loads(json.dumps(found.facts()))["results"][1]["vs"]
    assert [other["name"] for other in told[:2]] == ["NCCL", "NCCL ring"]
    assert row.choice in found.text() and "NCCL" in found.notes


def test_registered_buffers_have_a_row_of_their_own_where_nccl_has_kernels_for_them() -> None:
    topology = parse_cluster(Source("two", "define device = H100\ndefine node1 = 2"))
    compiled = driver.compile_text(Source("pair.rccl", PAIR), OPTIONS, topology)
    found = simulate_sizes(compiled, topology, [0, 8, 1 << 20], Call(), OPTIONS)
    nothing, small, large = found.registered
    assert nothing is None and small is not None and large is not None
    assert (small.protocol, large.protocol) == ("LL", "ST")
    told = json.loads(json.dumps(found.facts()))["results"][2]["vs"]
    assert [other["name"] for other in told[:3]] == ["NCCL", "NCCL registered", "NCCL ring"]
    assert [other.get("registered") for other in told[:3]] == [False, True, None]
    assert [row["name"] for row in found.records()][:2] == ["hccc", "NCCL ring"]  # of 0 bytes
    text = found.text()
    assert "# NCCL: as it is by default" in text and large.choice in text
    assert "# NCCL registered: NCCL with registered buffers (symmetric kernels" in text
    cards = beside("H100")  # over PCIe
    assert cards.registered == (None, None) and "NVLink" in cards.missing["NCCL registered"]


def test_a_launch_is_the_same_for_both() -> None:
    usual, late = beside("H100"), beside("H100", call=Call(launch=42.5))
    assert late.results[1].time - usual.results[1].time == pytest.approx(40)
    early, row = usual.library[1], late.library[1]
    assert early is not None and row is not None
    assert row.time - early.time == pytest.approx(40)


def test_devices_that_nobody_knows_have_none_unless_it_is_asked_for() -> None:
    found = beside("{vendor => other, name => X1}")
    assert found.library == (None, None) and "define device" in found.missing["NCCL"]
    assert beside("{vendor => other, name => X1}", VendorLibrary.NCCL).library[1] is not None
    with pytest.raises(UserError) as error:
        beside("H100", VendorLibrary.RCCL)
    assert error.value.problem.code == "E466"
