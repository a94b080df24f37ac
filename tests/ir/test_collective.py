"""What collectives are, as nccl-tests counts them."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count, collective_named

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


@pytest.mark.parametrize("op", PROGRAMMABLE)
def test_a_collective_is_found_however_it_is_written(op: OpType) -> None:
    for name in (op.value, op.value.lower(), op.value.upper(), f"{op.value[:3]}_{op.value[3:]}"):
        assert collective_named(name) is op


@pytest.mark.parametrize("name", ["", "all", "allreduces", "custom"])
def test_another_word_is_no_collective(name: str) -> None:
    with pytest.raises(UserError, match="E465"):
        collective_named(name)


@pytest.mark.parametrize("per", [1, 2, 3])
def test_an_alltoall_transposes_the_blocks(per: int) -> None:
    """Block b of rank r, of `per` chunks, is block r of rank b afterwards."""
    n = 3
    c = Collective(OpType.ALLTOALL, n, block_count(OpType.ALLTOALL, n) * per)
    for rank in range(n):
        for slot in range(n * per):
            sender, k = divmod(slot, per)
            wanted = (sender * n + rank) * per + k
            assert int(c.output_chunk(np.array(rank), np.array(slot))) == wanted
            assert int(c.input_chunk(np.array(sender), np.array(rank * per + k))) == wanted


@pytest.mark.parametrize("per", [1, 2, 3])
def test_a_sendrecv_moves_each_ranks_block_to_the_next(per: int) -> None:
    n = 3
    c = Collective(OpType.SENDRECV, n, block_count(OpType.SENDRECV, n) * per)
    for rank in range(n):
        for k in range(per):
            chunk = int(c.input_chunk(np.array((rank - 1) % n), np.array(k)))
            assert int(c.output_chunk(np.array(rank), np.array(k))) == chunk
            assert chunk == (rank - 1) % n * per + k


@pytest.mark.parametrize("op", [OpType.BROADCAST, OpType.SCATTER])
def test_only_a_root_sends_what_others_get(op: OpType) -> None:
    c = Collective(op, 4, 8, root=2)
    assert [c.input_blocks(rank) for rank in range(4)] == [0, 0, block_count(op, 4), 0]
    assert [c.output_blocks(rank) for rank in range(4)] == [1] * 4
