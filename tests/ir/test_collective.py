"""What collectives are, as nccl-tests counts them."""

from __future__ import annotations

import pytest

from hccc.ir.collective import Collective, OpType, block_count

# Bytes of a bus for each byte of algbw, in parts of 4 ranks (nccl-tests doc/PERFORMANCE.md).
BUS = {
    OpType.ALLREDUCE: 6,
    OpType.BROADCAST: 4,
    OpType.REDUCE: 4,
    OpType.SENDRECV: 4,
}


@pytest.mark.parametrize("op", OpType)
def test_the_load_of_the_bus_is_that_of_nccl_tests(op: OpType) -> None:
    c = Collective(op, 4, block_count(op, 4))
    assert c.bus_factor() == BUS.get(op, 3) / 4
