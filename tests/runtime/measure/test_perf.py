"""The measurement: sizes, memory layout, and that no wrong byte goes uncounted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hccc.ir.collective import PROGRAMMABLE, Collective, OpType, block_count
from hccc.runtime.layout import DTYPES
from hccc.runtime.measure import patterns, perf
from hccc.runtime.measure.patterns import Pattern
from hccc.runtime.measure.perf import RankMemory, SizeSchedule
from hccc.runtime.measure.session import DeviceSession
from hccc.runtime.request import LaunchRequest

COLLECTIVES = list(PROGRAMMABLE)
ONCE = SizeSchedule(64, 4096, 4.0, 0, 3, 1, True)
Spoil = Callable[[Sequence[RankMemory]], None]


@dataclass
class Host:
    """A collective done by NumPy from the send buffers, then spoiled."""

    c: Collective
    memory: Sequence[RankMemory]
    spoil: Spoil
    launches: int = 0

    def put(self) -> None: ...

    def get(self) -> None: ...

    def run(self, launches: int) -> float:
        begin = time.perf_counter()
        for _ in range(launches):
            self.launches += 1
            self._launch()
        self.spoil(self.memory)
        return time.perf_counter() - begin

    def _launch(self) -> None:
        sends = [m.send.copy() for m in self.memory]
        for rank, m in enumerate(self.memory):
            if not m.receive_length:
                continue
            n = m.receive_length // self.c.output_blocks(rank)
            match self.c.op:
                case OpType.ALLREDUCE | OpType.REDUCE:
                    m.receive[...] = np.add.reduce(sends)
                case OpType.REDUCESCATTER:
                    m.receive[...] = np.add.reduce(sends)[rank * n : (rank + 1) * n]
                case OpType.BROADCAST:
                    m.receive[...] = sends[self.c.root]
                case OpType.ALLGATHER | OpType.GATHER:
                    m.receive[...] = np.concatenate(sends)
                case OpType.SCATTER:
                    m.receive[...] = sends[self.c.root][rank * n : (rank + 1) * n]
                case OpType.ALLTOALL:
                    parts = [s[rank * n : (rank + 1) * n] for s in sends]
                    m.receive[...] = np.concatenate(parts)
                case OpType.SENDRECV:
                    m.receive[...] = sends[(rank - 1) % self.c.n_ranks]


def _nothing(_: Sequence[RankMemory]) -> None: ...


def _row(c: Collective, size: int, spoil: Spoil = _nothing) -> perf.PerfRow:
    def bind(memory: Sequence[RankMemory], count: int, in_place: bool) -> Host:
        return Host(c, memory, spoil)

    with np.errstate(all="ignore"):
        return perf.measure(c, "int32", "sum", size, ONCE, bind)


def _collective(op: OpType, n: int = 4) -> Collective:
    return Collective(op, n, block_count(op, n), 1)


@pytest.mark.parametrize("size", [0, 4, 1000, 4096])
@pytest.mark.parametrize("op", COLLECTIVES)
def test_a_right_collective_has_no_wrong_elements(op: OpType, size: int) -> None:
    c = _collective(op)
    row = _row(c, size)
    assert row.wrong == 0
    assert row.size <= size
    assert size - row.size < 16  # less than one element more in every block
    assert row.root == (1 if c.rooted else -1)
    assert row.redop == ("sum" if c.reduces else "none")


@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("where", ["first", "last"])
def test_one_wrong_element_is_counted(op: OpType, where: str) -> None:
    def spoil(memory: Sequence[RankMemory]) -> None:
        rank = next(r for r, m in enumerate(memory) if m.receive_length)
        memory[rank].receive[0 if where == "first" else -1] ^= 1

    row = _row(_collective(op), 4096, spoil)
    assert [half.wrong for half in row.halves] == [1, 1]


@pytest.mark.parametrize("op", COLLECTIVES)
def test_a_write_beside_the_buffers_is_counted(op: OpType) -> None:
    def spoil(memory: Sequence[RankMemory]) -> None:
        m = memory[1]
        m.slab[0] += 1
        m.slab[-1] += 1
        m.slab[max(m.receive_at + m.receive_length, m.send_at + m.send_length)] += 1

    row = _row(_collective(op), 4096, spoil)
    assert [half.wrong for half in row.halves] == [3, 3]


def test_a_changed_send_buffer_is_counted() -> None:
    def spoil(memory: Sequence[RankMemory]) -> None:
        memory[2].send[5] ^= 7

    row = _row(_collective(OpType.ALLREDUCE), 4096, spoil)
    assert row.halves[0].wrong == 1


def test_doing_nothing_is_counted() -> None:
    c = _collective(OpType.ALLREDUCE)

    class Lazy(Host):
        def _launch(self) -> None: ...

    def bind(memory: Sequence[RankMemory], count: int, in_place: bool) -> Host:
        return Lazy(c, memory, _nothing)

    row = perf.measure(c, "int32", "sum", 4096, ONCE, bind)
    assert row.halves[0].wrong == 4 * 1024
    assert row.wrong > 2 * 4000


def test_stale_data_is_counted() -> None:
    """The result of the launch before, left in place."""
    c = _collective(OpType.ALLREDUCE)

    class Stale(Host):
        def _launch(self) -> None:
            p = Pattern(self.c, "int32", "sum", self.memory[0].send_length)
            for m in self.memory:
                m.receive[...] = patterns.expected(p).at(0)

    def bind(memory: Sequence[RankMemory], count: int, in_place: bool) -> Host:
        return Stale(c, memory, _nothing)

    row = perf.measure(c, "int32", "sum", 4096, ONCE, bind)
    assert row.wrong > 8000


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float64"])
@pytest.mark.parametrize("op", COLLECTIVES)
def test_memory(op: OpType, dtype: str, in_place: bool) -> None:
    c = _collective(op)
    p = Pattern(c, dtype, "sum", 33)
    for rank in range(c.n_ranks):
        m = perf.allocate(p, rank, in_place)
        assert m.send.size == c.input_blocks(rank) * 33
        assert m.receive.size == c.output_blocks(rank) * 33
        assert not np.shares_memory(m.slab[:1], m.send) and m.slab.ctypes.data % 256 == 0
        if not in_place:
            assert not np.shares_memory(m.send, m.receive)
            assert m.send.ctypes.data % 256 == m.receive.ctypes.data % 256 == 0
        elif m.send.size and m.receive.size:
            shift = (m.send_at - m.receive_at) * c.chunks_per_block
            assert shift == c.alias_offset(rank) * 33


def test_sizes() -> None:
    assert list(replace(ONCE, smallest=8, largest=128, factor=2).sizes()) == [8, 16, 32, 64, 128]
    assert list(replace(ONCE, smallest=10, largest=40, factor=None, step=15).sizes()) == [
        10,
        25,
        40,
    ]
    assert list(replace(ONCE, smallest=64, largest=8).sizes()) == [64]
    assert list(replace(ONCE, smallest=0, largest=3, factor=1.5).sizes()) == [0, 1, 2, 3]


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """algbw = size / time, and busbw by the factors of its doc/PERFORMANCE.md."""
    factors = {
        OpType.ALLREDUCE: 2 * 3 / 4,
        OpType.ALLGATHER: 3 / 4,
        OpType.REDUCESCATTER: 3 / 4,
        OpType.ALLTOALL: 3 / 4,
        OpType.BROADCAST: 1,
        OpType.REDUCE: 1,
        OpType.SENDRECV: 1,
        OpType.GATHER: 3 / 4,
        OpType.SCATTER: 3 / 4,
    }
    for op, factor in factors.items():
        t = _row(_collective(op), 4096).halves[0]
        assert t.algbw == pytest.approx(4096 / t.time / 1e3)
        assert t.busbw == pytest.approx(t.algbw * factor)


def test_another_device_must_agree_on_every_bit() -> None:
    """A sum in another order is right on exact data, and shows on rough data."""
    c = _collective(OpType.ALLREDUCE)

    class Backwards(Host):
        def _launch(self) -> None:
            sends = [m.send.copy() for m in self.memory]
            for m in self.memory:
                m.receive[...] = np.add.reduce(sends[::-1])

    def bind(memory: Sequence[RankMemory], count: int, in_place: bool) -> Host:
        return Host(c, memory, _nothing)

    def backwards(memory: Sequence[RankMemory], count: int, in_place: bool) -> Host:
        return Backwards(c, memory, _nothing)

    with np.errstate(all="ignore"):
        assert perf.measure(c, "float32", "sum", 4096, ONCE, backwards).wrong == 0
        assert perf.measure(c, "float32", "sum", 4096, ONCE, bind, bind).wrong == 0
        assert perf.measure(c, "float32", "sum", 4096, ONCE, bind, backwards).wrong > 1000


class _OnDevice(np.ndarray[Any, Any]):
    """The part of a CuPy array that a session needs, in host memory."""

    def set(self, host: patterns.Array) -> None:
        assert host.dtype == self.dtype
        self[...] = host

    def get(self, out: patterns.Array) -> None:
        out[...] = self


class _Cupy:
    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> _OnDevice:
        if dtype == DTYPES["bfloat16"]:
            raise TypeError("CuPy has no bfloat16")
        return np.full(shape, 3, dtype).view(_OnDevice)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "int64"])
def test_device_sessions_copy_there_and_back(dtype: str, in_place: bool) -> None:
    c = _collective(OpType.ALLGATHER)
    p = Pattern(c, dtype, "sum", 50)
    memory = [perf.allocate(p, rank, in_place) for rank in range(c.n_ranks)]

    class Gather:
        def launch(
            self, inputs: Sequence[Any], outputs: Sequence[Any], request: LaunchRequest
        ) -> float:
            parts = [send.copy() for send in inputs]
            for receive in outputs:
                assert isinstance(receive, _OnDevice)
                receive[...] = np.concatenate(parts)
            return 0.25

    for m in memory:
        patterns.poison(m.slab)
    for rank, m in enumerate(memory):
        m.send[...] = patterns.inputs(p, rank)
    session = DeviceSession(Gather(), LaunchRequest(50, dtype, "sum", in_place), memory, _Cupy())
    session.put()
    assert session.run(3) == 0.75
    assert perf.wrong_elements(p, memory) > 0
    session.get()
    assert perf.wrong_elements(p, memory) == 0


def test_a_custom_collective_keeps_to_its_buffers() -> None:
    """Its results are unknown; guards and send buffers are checked all the same."""
    c = Collective(OpType.CUSTOM, 3, 6)

    class Custom(Host):
        def _launch(self) -> None:
            for m in self.memory:
                m.receive[...] = 7

    def row(spoil: Spoil) -> perf.PerfRow:
        def bind(memory: Sequence[RankMemory], count: int, in_place: bool) -> Custom:
            return Custom(c, memory, spoil)

        return perf.measure(c, "int32", "sum", 4096, ONCE, bind)

    def beside(memory: Sequence[RankMemory]) -> None:
        m = memory[2]
        m.slab[m.receive_at + m.receive_length] += 1

    def sent(memory: Sequence[RankMemory]) -> None:
        memory[1].send[3] ^= 1

    good = row(_nothing)
    assert [(half.wrong, half.outside) for half in good.halves] == [(None, 0), (None, 0)]
    assert good.wrong == 0
    assert [half.outside for half in row(beside).halves] == [1, 1]
    assert row(beside).wrong == 2
    assert [half.outside for half in row(sent).halves] == [1, 0]  # in place it is a receive buffer
