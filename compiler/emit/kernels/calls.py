"""calls: a primitive of a class → the call that executes it, with its numbers still as arrays.

The names and arguments are those of `runtime/include/hccc/device.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hccc.emit.kernels.network_parts import NetworkParts, network_parts
from hccc.ir.arrays import B1, I4, I8, places_among
from hccc.ir.choices import PlanProtocol
from hccc.ir.kernel_shape import packet_slots
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Guard, Operands

MEMORY = {
    Buffer.INPUT: "hccc_input",
    Buffer.OUTPUT: "hccc_output",
    Buffer.SCRATCH: "hccc_scratch",
    Buffer.STAGE: "hccc_stage",
}


@dataclass(frozen=True, slots=True, eq=False)
class KernelParameter:
    """A number that differs from primitive to primitive. `name`: of a local variable for it;
    values: i8[grid]."""

    name: str
    values: I8


@dataclass(frozen=True, slots=True)
class KernelCall:
    """`function(arguments...)`; arguments may be calls, parameters, or plain C."""

    function: str
    arguments: tuple[KernelCall | KernelParameter | str, ...]


Argument = KernelCall | KernelParameter | str


def parameters_of(call: KernelCall) -> Iterator[KernelParameter]:
    """Yields all parameters of a call and of the calls in it, in order."""
    for argument in call.arguments:
        if isinstance(argument, KernelCall):
            yield from parameters_of(argument)
        elif isinstance(argument, KernelParameter):
            yield argument


def caller(plan: Plan) -> Caller:
    """Returns the Caller of `plan`."""
    number = places_among(plan.queues.dst)
    if plan.protocol is PlanProtocol.LL:
        number = packet_slots(plan)[0]
    return Caller(plan, plan.rank_of(), number, network_parts(plan), plan.at_all_ranks())


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Makes the calls of one plan. rank: i4[P]; queue: i8[Q], the number of each queue among those
    of its receiver, in protocol LL of its first packet slot; all_ranks: b1[P] each, the primitives
    whose sources, and whose destinations, are one place of all ranks."""

    plan: Plan
    rank: I4
    queue: I8
    network: NetworkParts
    all_ranks: tuple[B1, B1]

    def primitive(self, rows: I8, prim: I8) -> KernelCall:
        """Returns the call for alike primitives `rows` (any shape), numbered `prim` in their
        blocks."""
        plan, one = self.plan, int(rows.flat[0])
        sub = plan.length_index()[rows]
        sources = [self._source(rows, k) for k in range(_count(plan.src.ptr, one))]
        first, count = int(plan.dst.ptr[one]), _count(plan.dst.ptr, one)
        puts = [k for k in range(count) if self.network.puts[first + k]]
        targets = [self._target(rows, k) for k in range(count) if k not in puts]
        return KernelCall(
            f"hccc_prim<{self._mode(one, len(sources))}>",
            (
                "b",
                KernelParameter("prim", prim),
                KernelParameter("chunk", sub.astype(np.int64)),
                KernelCall("hccc_waits", self._waits(rows, _count(plan.waits.ptr, one))),
                KernelCall("hccc_from", tuple(sources)),
                KernelCall("hccc_to", tuple(targets)),
                *([self._put(rows, puts)] if puts else []),
                KernelCall("hccc_posts", self._posts(rows, _count(plan.posts.ptr, one))),
            ),
        )

    def _put(self, rows: I8, puts: list[int]) -> KernelCall:
        """Returns the call of a proxy's put: from the first own destination, else from the only
        source."""
        one, dst = int(rows.flat[0]), self.plan.dst
        rank = self.rank[one]
        places = range(int(dst.ptr[one]), int(dst.ptr[one + 1]))
        own = (
            k - places[0] for k in places if dst.rank[k] == rank and dst.buffer[k] != Buffer.QUEUE
        )
        local = next(own, None)
        source = self._source(rows, 0) if local is None else self._target(rows, local)
        return KernelCall("hccc_put", (source, *(self._target(rows, k) for k in puts)))

    def verb(self, one: int) -> str:
        """Describes primitive `one` for comments."""
        plan = self.plan
        k, d = _count(plan.src.ptr, one), _count(plan.dst.ptr, one)
        sends = Buffer.QUEUE in _buffers(plan.dst, one)
        receives = Buffer.QUEUE in _buffers(plan.src, one)
        what = f"reduce {k} sources" if k > 1 else "copy"
        where = f" to {d} places" if d > 1 else ""
        put = bool(self.network.puts[plan.dst.ptr[one] : plan.dst.ptr[one + 1]].any())
        after = (", send" if sends else "") + (", put over the network" if put else "")
        return ("receive, " if receives else "") + what + where + after

    def _mode(self, one: int, sources: int) -> str:
        guard = Guard(int(self.plan.guard[one]))
        flags = ["HCCC_REDUCE" if sources > 1 else "HCCC_COPY"]
        flags += ["HCCC_FINAL"] if self.plan.final[one] else []
        flags += ["HCCC_FAR"] if self.network.rows[one] else []
        names = ("HCCC_FROM_ALL", "HCCC_TO_ALL")
        flags += [name for name, of in zip(names, self.all_ranks, strict=True) if of[one]]
        flags += ["HCCC_IF_IN_PLACE"] if guard is Guard.IN_PLACE else []
        flags += ["HCCC_IF_OUT_OF_PLACE"] if guard is Guard.OUT_OF_PLACE else []
        return " | ".join(flags)

    def _waits(self, rows: I8, n: int) -> tuple[Argument, ...]:
        waits = self.plan.waits
        at = waits.ptr[:-1][rows]
        return tuple(
            KernelParameter("flag", waits.index[at + k].astype(np.int64)) for k in range(n)
        )

    def _posts(self, rows: I8, n: int) -> tuple[Argument, ...]:
        posts = self.plan.posts
        at = posts.ptr[:-1][rows]
        return tuple(_post(posts.rank[at + k], posts.flag[at + k]) for k in range(n))

    def _source(self, rows: I8, k: int) -> KernelCall:
        at = self.plan.src.ptr[:-1][rows] + k
        return self._operand(self.plan.src, at, "hccc_recv")

    def _target(self, rows: I8, k: int) -> KernelCall:
        at = self.plan.dst.ptr[:-1][rows] + k
        return self._operand(self.plan.dst, at, "hccc_send")

    def _operand(self, operands: Operands, at: I8, queue_function: str) -> KernelCall:
        buffer = Buffer(int(operands.buffer[at.flat[0]]))
        rank, slot = operands.rank[at], operands.slot[at]
        if buffer is Buffer.QUEUE:
            return self._message(queue_function, rank, slot)
        return KernelCall(
            MEMORY[buffer], ("b", _peer(rank), KernelParameter("slot", slot.astype(np.int64)))
        )

    def _message(self, function: str, queue: I4, message_index: I4) -> KernelCall:
        q = self.plan.queues
        if self.plan.protocol is PlanProtocol.LL:
            slot = KernelParameter("slot", self.queue[queue] + message_index)
            if function == "hccc_recv":
                return KernelCall("hccc_packets_in", ("b", _peer(q.src[queue]), slot))
            return KernelCall("hccc_packets_out", ("b", _peer(q.dst[queue]), slot))
        head = ("b", KernelParameter("queue", self.queue[queue]))
        index = KernelParameter("turn", message_index.astype(np.int64))
        length = KernelParameter("length", q.length[queue].astype(np.int64))
        data = KernelParameter("flag", q.data_flag[queue].astype(np.int64))
        credit = KernelParameter("flag", q.credit_flag[queue].astype(np.int64))
        if function == "hccc_recv":
            return KernelCall(function, (*head, index, length, data, _peer(q.src[queue]), credit))
        sent = (*head, _peer(q.dst[queue]), index, length, data, credit)
        if self.network.own[queue.flat[0]] < 0:
            return KernelCall(function, sent)
        return KernelCall("hccc_send_far", (*sent, KernelParameter("own", self.network.own[queue])))


def _post(rank: I4, flag: I4) -> KernelCall:
    return KernelCall("hccc_post", (_peer(rank), KernelParameter("flag", flag.astype(np.int64))))


def _peer(rank: I4) -> KernelParameter:
    return KernelParameter("peer", rank.astype(np.int64))


def _count(ptr: I8, row: int) -> int:
    return int(ptr[row + 1] - ptr[row])


def _buffers(operands: Operands, row: int) -> list[int]:
    return [int(x) for x in operands.buffer[operands.ptr[row] : operands.ptr[row + 1]]]
