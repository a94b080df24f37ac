"""Calls of blocks of lengths of their own."""

from __future__ import annotations

import pytest

from hccc.ir.collective import Collective, OpType, block_count
from hccc.ir.uneven import SKEWS, modes_of


@pytest.mark.parametrize("skew", ["", *SKEWS])
@pytest.mark.parametrize("op", [OpType.ALLTOALL, OpType.ALLGATHER, OpType.REDUCESCATTER])
def test_only_a_skewed_alltoall_is_never_in_place(op: OpType, skew: str) -> None:
    c = Collective(op, 3, block_count(op, 3), uneven=True)
    both = op is not OpType.ALLTOALL or not skew
    assert modes_of(c, (False, True), skew) == ((False, True) if both else (False,))
    assert modes_of(c, (True,), skew) == ((True,) if both else ())
