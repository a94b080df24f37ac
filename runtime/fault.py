"""fault: the report of a lost launch: which wait passed its deadline, and where it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hccc.base.diagnostics import Problem, UserError
from hccc.runtime.abi import FaultRecord


class WaitKind(IntEnum):
    """enum hccc_wait_kind."""

    NONE = 0
    FLAG = 1
    MESSAGE = 2
    CREDIT = 3
    READY = 4
    GO = 5
    FINISHED = 6
    DONE = 7
    PROXY = 8
    NOT_IN_WINDOW = 9
    ABORTED = 10
    NO_PROXY = 11
    UNMAPPED = 12
    OTHER_CALL = 13
    PACKET = 14


_WAITED_FOR = {
    WaitKind.NONE: "nothing",
    WaitKind.FLAG: "flag {} of an earlier primitive",
    WaitKind.MESSAGE: "a message (flag {})",
    WaitKind.CREDIT: "a free slot in a queue (flag {})",
    WaitKind.READY: "rank {} to start the launch",
    WaitKind.GO: "its rank's first thread block to let it start",
    WaitKind.FINISHED: "block {} of its rank to finish",
    WaitKind.DONE: "rank {} to finish the launch",
    WaitKind.PROXY: "its proxy to carry what is for rank {}",
    WaitKind.PACKET: "packets of rank {}",
}
# What ends a launch without a wait.
_REASONS = {
    WaitKind.NOT_IN_WINDOW: "has a buffer that peers touch and that lies in none of its windows",
    WaitKind.ABORTED: "was asked to leave the launch",
    WaitKind.NO_PROXY: "reaches rank {} over a network only, and was given no proxy ring",
    WaitKind.UNMAPPED: "shares memory with rank {} in the plan, and was given none of it",
    WaitKind.OTHER_CALL: "meets rank {}, which makes another call",
}


@dataclass(frozen=True, slots=True)
class LaunchFault:
    """One wait that passed its deadline; `primitive` is None outside all primitives."""

    rank: int
    thread_block: int
    channel: int
    primitive: int | None
    micro_batch: int
    flag: int
    want: int
    have: int
    kind: WaitKind

    @staticmethod
    def of(record: FaultRecord) -> LaunchFault:
        """Reads the fault of a claimed record."""
        return LaunchFault(
            rank=record.rank,
            thread_block=record.thread_block,
            channel=record.channel,
            primitive=record.primitive if record.primitive >= 0 else None,
            micro_batch=record.micro_batch,
            flag=record.flag,
            want=record.want,
            have=record.have,
            kind=WaitKind(record.kind),
        )

    def __str__(self) -> str:
        place = f"rank {self.rank}, thread block {self.thread_block}, channel {self.channel}"
        if self.primitive is not None:
            batch = "packet slot" if self.kind is WaitKind.PACKET else "micro-batch"
            place += f", primitive {self.primitive}, {batch} {self.micro_batch}"
        if reason := _REASONS.get(self.kind):
            return f"{place} {reason.format(self.flag)}"
        waited = _WAITED_FOR[self.kind].format(self.flag)
        return f"{place} waited for {waited}: want {self.want}, have {self.have}"


class LaunchError(UserError):
    """A launch passed its deadline, at `fault`. plan: the name of a catalogue's plan, empty where
    there is one plan. The buffers' contents are undefined."""

    def __init__(self, fault: LaunchFault, timeout: float, plan: str = "") -> None:
        problem = Problem(
            "E420",
            f"no progress for {timeout:g} s{f' in {plan}' if plan else ''}: {fault}",
            help="raise the timeout if the machine is only slow",
        )
        super().__init__(problem)
        self.fault = fault
        self.timeout = timeout
        self.plan = plan

    def __reduce__(  # type: ignore[override]
        self,
    ) -> tuple[type[LaunchError], tuple[LaunchFault, float, str]]:
        return (LaunchError, (self.fault, self.timeout, self.plan))
