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


class PlanProtocol(StrEnum):
    """How data and the news of it cross between ranks (kernel-protocol §14)."""

    SIMPLE = "simple"  # data, then a counter
    LL = "ll"  # packets, each with data and a flag in one


class Accumulate(StrEnum):
    """The type in which a primitive adds its sources (kernel-protocol §1): no less than that for
    elements of floats, or the element's own."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    SAME = "same"

    @property
    def rounds(self) -> bool:
        """Whether every two values are added and rounded by themselves."""
        return self is Accumulate.SAME

    @property
    def bits(self) -> int:
        """The bits of the type, 0 for the element's own: HCCC_ACCUMULATE."""
        return {Accumulate.FLOAT32: 32, Accumulate.FLOAT64: 64, Accumulate.SAME: 0}[self]

    @property
    def stated(self) -> str:
        """The statement of plan files, kernels and reports."""
        if self.rounds:
            return "their own type, rounded after every two values"
        return f"{self.value} within a primitive, rounded once when it stores"

    @property
    def sums(self) -> str:
        """The statement, with the elements that it is about."""
        floats = "floats" if self is Accumulate.FLOAT64 else "float16 and bfloat16"
        return f"{floats} are kept in {self.stated}"


class Bits(StrEnum):
    """Whether floats may be added in an order that the plan does not fix (kernel-protocol §15)."""

    SAME = "same"
    ANY = "any"

    @property
    def stated(self) -> str:
        """The statement of kernels and reports about sums that may go through a switch."""
        if self is Bits.ANY:
            return "floats are added by the switch, in any order"
        return "integers are added by the switch, floats in the plan's order"


class Allocator(StrEnum):
    """What a thread block is for (`passes/allocate`); by depth and by load there are as
    many as a name says."""

    STATE = "state"
    CONNECTION = "connection"
    STAGE = "stage"
    DEPTH = "depth"
    DEPTH8 = "depth8"
    DEPTH16 = "depth16"
    DEPTH32 = "depth32"
    LOAD8 = "load8"
    LOAD16 = "load16"
    LOAD32 = "load32"
