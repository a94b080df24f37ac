"""op_type: the collectives, by name."""

from __future__ import annotations

from enum import StrEnum


class OpType(StrEnum):
    """The collectives, spelled as in a program's `OpType=`."""

    ALLGATHER = "Allgather"
    ALLREDUCE = "Allreduce"
    REDUCESCATTER = "Reducescatter"
    BROADCAST = "Broadcast"
    REDUCE = "Reduce"
    GATHER = "Gather"
    SCATTER = "Scatter"
    ALLTOALL = "Alltoall"
    SENDRECV = "SendRecv"
    CUSTOM = "custom"


PROGRAMMABLE = tuple(op for op in OpType if op is not OpType.CUSTOM)
UNEVEN = (OpType.ALLGATHER, OpType.REDUCESCATTER, OpType.GATHER, OpType.SCATTER, OpType.ALLTOALL)
SKEWED = ("random", "zipf", "one", "empty")  # how their lengths can be drawn (`ir/uneven.skewed`)
UNEVEN_NAMES = tuple(f"{op.value.lower()}v" for op in UNEVEN)  # blocks with lengths of their own
NAMES = tuple(op.value.lower() for op in PROGRAMMABLE)  # on the command line
