"""collectives: which collectives are copies, sums, or both."""

from __future__ import annotations

from hccc.ir.collective import OpType

COPIES = frozenset({OpType.ALLGATHER, OpType.BROADCAST})
SUMS = frozenset({OpType.REDUCESCATTER, OpType.REDUCE})
BOTH = COPIES | SUMS | {OpType.ALLREDUCE}  # sums to the owners of chunks, then copies from them
