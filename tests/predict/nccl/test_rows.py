"""rows: the library of a cluster's devices, and its calls of several sizes."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.ir.topology import Topology
from hccc.predict.nccl.choose import Forced
from hccc.predict.nccl.rows import VendorLibrary, library_of, machine_for, rows
from hccc.predict.nccl.tuning import NcclAlgorithm, Protocol
from tests.predict.nccl.machines import H100


def node(device: str) -> Topology:
    text = f"define device = {device}\ndefine node1 = 2\n"
    return parse_cluster(Source("node", text + "define bandwidth = {mesh => [((0,1) -> 40)]}"))


def test_the_library_of_the_devices() -> None:
    assert library_of(node("H100")) is VendorLibrary.NCCL
    assert library_of(node("MI300X")) is VendorLibrary.RCCL
    assert library_of(node("{vendor => other, name => X1}")) is None
    with pytest.raises(UserError) as error:
        machine_for(VendorLibrary.RCCL, node("H100"))
    assert error.value.problem.code == "E466"


def test_a_row_of_each_size() -> None:
    forced = Forced(NcclAlgorithm.RING, Protocol.SIMPLE, 4)
    one, two = rows(H100, OpType.ALLREDUCE, [1 << 20, 1 << 30], forced)
    assert one.choice == "Ring Simple, 4 channels" and one.library is VendorLibrary.NCCL
    assert two.busbw == pytest.approx(two.algbw * 7 / 4)
    assert two.algbw == pytest.approx(two.size / two.time / 1000)
    later = rows(H100, OpType.ALLREDUCE, [1 << 20], forced, more=5.0)[0]
    assert later.time == pytest.approx(one.time + 5)
    with pytest.raises(UserError) as error:
        rows(H100, OpType.ALLREDUCE, [0])
    assert error.value.problem.code == "E415"
