"""What every engine must do: `check` makes all calls that an engine says it can, and compares them
with NumPy, on data that differ at each rank and element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.vendor.engines import VendorCall, VendorCommunicator, VendorEngine, load

COUNTS = (0, 1, 7, 1_031)
OPS: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}
Array = NDArray[Any]


def pattern(rank: int, n: int, dtype: str) -> Array:
    """Returns small whole numbers, whose sums and products every type has exactly."""
    return ((np.arange(n) * 5 + 3 * rank) % 3 + 1).astype(dtype)


def check(communicator: Communicator, vendor: str, file: str | None, id: bytes, plan: Any) -> Any:
    """Checks an engine at a rank. plan: its types, reductions and counts. Returns the engine's
    name, the number of results that were compared, and those that differ."""
    engine = load(vendor, file)
    with engine.join(id, communicator.n_ranks, communicator.rank, timeout=60) as comm:
        checked = Checked(engine, comm)
        checked.all(*plan)
        checked.messages()
        checked.refusals()
        checked.splits()
    again = load(vendor, file)
    assert again.name == engine.name
    return engine.name, checked.made, checked.wrong


class Checked:
    """The calls of one rank, and what was wrong with them."""

    def __init__(self, engine: VendorEngine, comm: VendorCommunicator) -> None:
        self.engine, self.comm = engine, comm
        self.n, self.rank = comm.n_ranks, comm.rank
        self.made = 0
        self.wrong: list[str] = []

    def same(self, what: str, found: Array, wanted: Array) -> None:
        """Notes a result that is not what it should be."""
        self.made += 1
        if not np.array_equal(found, wanted):
            self.wrong.append(f"rank {self.rank}: {what}: {found[:4]} is not {wanted[:4]}")

    def all(self, dtypes: list[str], ops: list[str], counts: tuple[int, ...] = COUNTS) -> None:
        """Makes every collective of every type, reduction and length, in and out of place."""
        for dtype in dtypes:
            for count in counts:
                self.moves(dtype, count)
                for op in ops:
                    if self.engine.can(VendorCall.ALL_REDUCE, dtype, op):
                        self.reductions(dtype, count, op)

    def _inputs(self, n: int, dtype: str) -> list[Array]:
        return [pattern(r, n, dtype) for r in range(self.n)]

    def reductions(self, dtype: str, count: int, op: str) -> None:
        """Makes AllReduce, Reduce and ReduceScatter."""
        comm, rank, what = self.comm, self.rank, f"{op} of {count} {dtype}"
        inputs = self._inputs(count, dtype)
        total = OPS[op](np.stack(inputs), dtype=dtype) if op in ("sum", "prod") else OPS[op](inputs)
        out = np.zeros(count, dtype)
        comm.all_reduce(inputs[rank], out, op)
        self.same(f"AllReduce, {what}", out, total)
        mine = inputs[rank].copy()
        comm.all_reduce(mine, op=op)
        self.same(f"AllReduce in place, {what}", mine, total)
        for root in range(self.n):
            at_root = rank == root
            out = np.zeros(count, dtype)
            comm.reduce(inputs[rank], out if at_root else None, root, op)
            self.same(
                f"Reduce to {root}, {what}", out, total if at_root else np.zeros(count, dtype)
            )
            mine = inputs[rank].copy()
            comm.reduce(mine, mine if at_root else None, root, op)
            self.same(
                f"Reduce in place to {root}, {what}", mine, total if at_root else inputs[rank]
            )
        inputs = self._inputs(count * self.n, dtype)
        total = OPS[op](np.stack(inputs), dtype=dtype) if op in ("sum", "prod") else OPS[op](inputs)
        own = slice(rank * count, (rank + 1) * count)
        out = np.zeros(count, dtype)
        comm.reduce_scatter(inputs[rank], out, op)
        self.same(f"ReduceScatter, {what}", out, total[own])
        mine = inputs[rank].copy()
        comm.reduce_scatter(mine, mine[own], op)
        self.same(f"ReduceScatter in place, {what}", mine[own], total[own])

    def moves(self, dtype: str, count: int) -> None:
        """Makes the collectives that reduce nothing."""
        comm, rank, n, what = self.comm, self.rank, self.n, f"{count} {dtype}"
        inputs = self._inputs(count, dtype)
        every, own = np.concatenate(inputs), slice(rank * count, (rank + 1) * count)
        out = np.zeros(count * n, dtype)
        comm.all_gather(inputs[rank], out)
        self.same(f"AllGather of {what}", out, every)
        out = np.zeros(count * n, dtype)
        out[own] = inputs[rank]
        comm.all_gather(out[own], out)
        self.same(f"AllGather in place of {what}", out, every)
        long = self._inputs(count * n, dtype)
        wanted = np.concatenate([one[own] for one in long])
        out = np.zeros(count * n, dtype)
        comm.all_to_all(long[rank], out)
        self.same(f"AllToAll of {what}", out, wanted)
        mine = long[rank].copy()
        comm.all_to_all(mine, mine)
        self.same(f"AllToAll in place of {what}", mine, wanted)
        for root in range(n):
            self._rooted(inputs, long, every, dtype, count, root)

    def _rooted(
        self,
        inputs: list[Array],
        long: list[Array],
        every: Array,
        dtype: str,
        count: int,
        root: int,
    ) -> None:
        comm, rank, n, what = self.comm, self.rank, self.n, f"{count} {dtype}, root {root}"
        at_root, own = rank == root, slice(rank * count, (rank + 1) * count)
        mine = inputs[rank].copy()
        comm.broadcast(mine, root)
        self.same(f"Broadcast of {what}", mine, inputs[root])
        nothing = np.zeros(count * n, dtype)
        out = nothing.copy()
        comm.gather(inputs[rank], out if at_root else None, root)
        self.same(f"Gather of {what}", out, every if at_root else nothing)
        out = nothing.copy()
        out[own] = inputs[rank]
        comm.gather(out[own], out if at_root else None, root)
        if at_root:
            self.same(f"Gather in place of {what}", out, every)
        part = np.zeros(count, dtype)
        comm.scatter(long[root] if at_root else None, part, root)
        self.same(f"Scatter of {what}", part, long[root][own])
        mine = long[rank].copy()
        part = mine[own] if at_root else np.zeros(count, dtype)
        comm.scatter(mine if at_root else None, part, root)
        self.same(f"Scatter in place of {what}", part, long[root][own])

    def messages(self) -> None:
        """Sends around a ring, which would block one after another; and from rank 0 to 1."""
        before, after = (self.rank - 1) % self.n, (self.rank + 1) % self.n
        for count in (1, 300_001):
            got = np.zeros(count, "int32")
            with self.engine.group():
                self.comm.send(pattern(self.rank, count, "int32"), after)
                self.comm.recv(got, before)
            self.same(f"a ring of {count}", got, pattern(before, count, "int32"))
        if self.n == 1:
            return
        got = np.zeros(9, "float64")
        if self.rank == 0:
            self.comm.send(pattern(0, 9, "float64"), 1)
        elif self.rank == 1:
            self.comm.recv(got, 0)
            self.same("a message", got, pattern(0, 9, "float64"))

    def refusals(self) -> None:
        """Makes calls that are refused, and cost nothing."""
        x = np.ones(4, "float32")
        none = Result.INVALID_ARGUMENT
        calls: dict[str, Callable[[], None]] = {
            "a root that is none": lambda: self.comm.broadcast(x, self.n),
            "a reduction that is none": lambda: self.comm.all_reduce(x, op="band"),
        }
        for what, call in calls.items():
            try:
                call()
                self.wrong.append(f"{what} is not refused")
            except CommunicatorError as error:
                if error.result != none:
                    self.wrong.append(f"{what}: {error.result.name}, {error.text}")
        for dtype in ("float16", "float8e4m3", "complex64"):
            if not self.engine.can(VendorCall.ALL_REDUCE, dtype, "sum"):
                self._refused_type(dtype)
        self.made += 1
        if self.comm.error != Result.SUCCESS:
            self.wrong.append("a refusal has cost the communicator")

    def _refused_type(self, dtype: str) -> None:
        words = {"float8e4m3": "uint8"}
        x = np.zeros(4, words.get(dtype, dtype))
        if dtype in words:
            return  # NumPy has no such type
        try:
            self.comm.all_reduce(x)
            self.wrong.append(f"{dtype} is not refused")
        except CommunicatorError as error:
            if error.result != Result.INVALID_USAGE or dtype not in error.text:
                self.wrong.append(f"{dtype}: {error.result.name}, {error.text}")

    def splits(self) -> None:
        """Splits into even and odd ranks, in reverse order, and these again; the last rank stays
        out of another split."""
        half = self.comm.split(self.rank % 2, -self.rank)
        assert half is not None
        ranks = [r for r in reversed(range(self.n)) if r % 2 == self.rank % 2]
        if (half.n_ranks, half.rank) != (len(ranks), ranks.index(self.rank)):
            self.wrong.append(f"rank {self.rank} is {half.rank} of {half.n_ranks} in {ranks}")
        out = np.zeros(3 * len(ranks), "int64")
        half.all_gather(pattern(self.rank, 3, "int64"), out)
        self.same(
            "AllGather of a half", out, np.concatenate([pattern(r, 3, "int64") for r in ranks])
        )
        alone = half.split(half.rank)
        assert alone is not None
        x = pattern(self.rank, 3, "int64")
        alone.all_reduce(x)
        self.same("AllReduce alone", x, pattern(self.rank, 3, "int64"))
        alone.destroy()
        half.destroy()
        some = self.comm.split(None if self.rank == self.n - 1 else 4)
        if (some is None) != (self.rank == self.n - 1):
            self.wrong.append(
                "a rank without a color has a communicator, or one with a color has none"
            )
        if some is not None:
            some.destroy()
