"""choices: the names of the ways that passes can be asked to work.

Options offer them, passes know what each means; nothing here takes long to import.
"""

from __future__ import annotations

from enum import StrEnum


class Scheduler(StrEnum):
    """The orders of tasks (`passes/hpds`, `list_schedule`, `round_robin`)."""

    HPDS = "hpds"
    LIST = "list"
    ROUND_ROBIN = "round-robin"


class Fusion(StrEnum):
    """How far primitives are merged (`passes/fuse`)."""

    NONE = "none"
    REDUCE = "reduce"
    FULL = "full"


class NetworkLowering(StrEnum):
    """How tasks between two memory domains of a mixed plan are done (`passes/lower`)."""

    SLOTS = "slots"
    PUT = "put"


class Allocator(StrEnum):
    """What a thread block is for (`passes/allocate`); by depth there are as many as a name says."""

    STATE = "state"
    CONNECTION = "connection"
    STAGE = "stage"
    DEPTH = "depth"
    DEPTH8 = "depth8"
    DEPTH16 = "depth16"
    DEPTH32 = "depth32"
