"""MSCCL++'s executor in plain Python, to judge JSON plans by: nothing of hccc is used here.

Model (msccl-formats §7; execution_plan.cc, execution_kernel.hpp): thread blocks run
their operations concurrently; between two `nop`s (__syncthreads) a block's operations are done by
different threads, so in *any* order here. A memory channel counts signals, the k-th wait needs
the k-th signal; semaphores count likewise. Ranks start late at random: touching the memory of a
rank that has not started, or whose kernel has ended, is an error.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Value = Counter[tuple[int, int]]
Address = tuple[int, str, int]

MAX_OPS, MAX_CHANNELS, MAX_PER_OP, MAX_BUFFERS_PER_OP, MAX_SEMAPHORES = 64, 16, 8, 10, 16
CHUNKS = {"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}
FIELDS = {
    "nop": set(),
    "signal": {"channel_ids", "channel_type"},
    "wait": {"channel_ids", "channel_type"},
    "sem_acquire": {"semaphore_ids"},
    "sem_release": {"semaphore_ids"},
    "copy": {"src_buff", "dst_buff"},
    "put": {"src_buff", "dst_buff", "channel_type"},
    "rre": {"src_buff", "dst_buff", "channel_type", "reduce_op"},
    "rres": {"src_buff", "dst_buff", "channel_type", "reduce_op"},
}


@dataclass(slots=True)
class Thread:
    """A thread block: the operations before its next fence that are not done, and the rest."""

    rank: int
    spec: dict[str, Any]
    at: int = 0
    pending: list[dict[str, Any]] = field(default_factory=list)

    def refill(self) -> None:
        """Moves past fences, and takes up the operations before the next fence."""
        ops = self.spec["ops"]
        while not self.pending and self.at < len(ops):
            while self.at < len(ops) and ops[self.at]["name"] != "nop":
                self.pending.append(ops[self.at])
                self.at += 1
            self.at += 1

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self.pending and self.at >= len(self.spec["ops"])


class ExecutorMachine:
    """All ranks' memory, channels and semaphores."""

    def __init__(self, text: str, alias: dict[Address, Address]) -> None:
        self.plan = json.loads(text)
        self.gpus = self.plan["gpus"]
        self.alias = alias
        self.memory: dict[Address, Value] = {}
        self.ends: list[list[tuple[int, int]]] = []  # of a rank's channels: (peer, its channel)
        self.inbound: Counter[tuple[int, int]] = Counter()  # signals at (rank, channel)
        self.expected: Counter[tuple[int, int]] = Counter()
        self.semaphores: Counter[tuple[int, int]] = Counter()
        self.started: set[int] = set()
        self._check()
        self._connect()

    def _check(self) -> None:
        """Checks the loader's tables and the kernel's arrays."""
        assert self.plan["protocol"] == "Simple"
        assert not self.plan["reuse_resources"] and not self.plan["use_double_scratch_buffer"]
        assert (self.plan["min_message_size"], self.plan["max_message_size"]) == (0, 2**64 - 1)
        assert self.plan["num_threads_per_block"] in range(32, 1025, 32)
        assert self.plan["buffer_alignment"] % 16 == 0  # of its vectors
        for rank, gpu in enumerate(self.gpus):
            assert gpu["id"] == rank
            assert gpu["input_chunks"] > 0 and gpu["output_chunks"] > 0  # the loader divides
            channels = sum(len(c["connected_to"]) for c in gpu["channels"])
            assert all(s["init_value"] == 0 for s in gpu["semaphores"])
            for number, block in enumerate(gpu["threadblocks"]):
                assert block["id"] == number
                assert len(block["ops"]) <= MAX_OPS
                ids = [i for c in block["channels"] for i in c["channel_ids"]]
                refs = [i for c in block["remote_buffer_refs"] for i in c["remote_buffer_ids"]]
                assert len(ids) <= MAX_CHANNELS and all(0 <= i < channels for i in ids)
                assert len(refs) <= MAX_CHANNELS
                assert all(0 <= i < len(gpu["remote_buffers"]) for i in refs)
                for op in block["ops"]:
                    self._check_op(gpu, op, len(ids))

    def _check_op(self, gpu: dict[str, Any], op: dict[str, Any], channels: int) -> None:
        assert set(op) == FIELDS[op["name"]] | {"name"}
        ids = op.get("channel_ids", [])
        assert len(ids) <= MAX_PER_OP and all(0 <= i < channels for i in ids)
        assert len(set(ids)) == len(ids)
        sems = op.get("semaphore_ids", [])
        assert len(sems) <= MAX_SEMAPHORES and all(0 <= i < len(gpu["semaphores"]) for i in sems)
        for end in ("src_buff", "dst_buff"):
            buffers = op.get(end, [])
            assert len(buffers) <= MAX_BUFFERS_PER_OP
            assert all(b["size"] == 1 for b in buffers)
        if op["name"] == "put":  # the kernel takes the k-th source for the k-th destination
            assert len(op["src_buff"]) == len(op["dst_buff"])
        if op["name"] in ("rre", "rres"):
            assert op["reduce_op"] == "sum" and (op["name"] == "rres") == (len(op["dst_buff"]) > 1)

    def _connect(self) -> None:
        """Connects the k-th channel of a to b with the k-th of b to a."""
        places: dict[tuple[int, int], list[int]] = {}
        for rank, gpu in enumerate(self.gpus):
            peers = [p for c in gpu["channels"] for p in c["connected_to"]]
            for i, peer in enumerate(peers):
                places.setdefault((rank, peer), []).append(i)
            self.ends.append([(peer, -1) for peer in peers])
        for (rank, peer), mine in places.items():
            theirs = places[peer, rank]
            assert len(mine) == len(theirs)
            for i, j in zip(mine, theirs, strict=True):
                self.ends[rank][i] = (peer, j)

    def launch(self, inputs: list[int], seed: int) -> None:
        """Runs one collective call on fresh send buffers; channels keep their counts."""
        rng = random.Random(seed)
        self.memory.clear()
        self.started.clear()
        for rank, slots in enumerate(inputs):
            for slot in range(slots):
                self._write((rank, "i", slot), Counter({(rank, slot): 1}), check=False)
        waiting = list(range(len(self.gpus)))
        rng.shuffle(waiting)
        live: list[Thread] = []
        while live or waiting:
            if waiting and (not live or rng.random() < 0.1 or not self._step(rng, live)):
                rank = waiting.pop()
                self.started.add(rank)
                live += [Thread(rank, b) for b in self.gpus[rank]["threadblocks"]]
            elif not waiting:
                assert self._step(rng, live), "the plan hangs"
            live = [t for t in live if not t.done]
            running = {t.rank for t in live}
            self.started -= {r for r in self.started if r not in running}
        assert self.inbound == self.expected, "a later launch would be signalled too early"
        assert not any(self.semaphores.values())

    def _step(self, rng: random.Random, live: list[Thread]) -> bool:
        """Runs the operations that are ready, in a random round; tells whether there were any."""
        moved = False
        rng.shuffle(live)
        for thread in live:
            thread.refill()
            rng.shuffle(thread.pending)
            for op in list(thread.pending):
                if rng.random() < 0.6 and self._perform(thread, op):
                    thread.pending.remove(op)
                    moved = True
            thread.refill()
        if moved:
            return True
        for thread in live:  # nothing by chance: is there anything at all?
            for op in list(thread.pending):
                if self._perform(thread, op):
                    thread.pending.remove(op)
                    thread.refill()
                    return True
        return any(t.done for t in live)

    def _perform(self, thread: Thread, op: dict[str, Any]) -> bool:
        name, rank = op["name"], thread.rank
        if name in ("signal", "wait"):
            return self._channels(thread, op)
        if name == "sem_release":
            self.semaphores.update((rank, i) for i in op["semaphore_ids"])
            return True
        if name == "sem_acquire":
            if any(self.semaphores[rank, i] < 1 for i in op["semaphore_ids"]):
                return False
            self.semaphores.subtract((rank, i) for i in op["semaphore_ids"])
            return True
        sources = [self._read(self._place(thread, b)) for b in op["src_buff"]]
        targets = [self._place(thread, b) for b in op["dst_buff"]]
        if name in ("copy", "put"):
            for value, target in zip(sources, targets, strict=True):
                self._write(target, value)
        else:
            total: Value = sum(sources[1:], sources[0])
            for target in targets:
                self._write(target, total)
        return True

    def _channels(self, thread: Thread, op: dict[str, Any]) -> bool:
        ids = [i for c in thread.spec["channels"] for i in c["channel_ids"]]
        mine = [ids[i] for i in op["channel_ids"]]
        if op["name"] == "signal":
            self.inbound.update(self.ends[thread.rank][i] for i in mine)
            return True
        here = [(thread.rank, i) for i in mine]
        if any(self.inbound[c] <= self.expected[c] for c in here):
            return False
        self.expected.update(here)
        return True

    def _place(self, thread: Thread, buffer: dict[str, Any]) -> Address:
        index = buffer["index"]
        if "type" in buffer:
            rank, letter = thread.rank, buffer["type"]
        else:
            refs = [i for c in thread.spec["remote_buffer_refs"] for i in c["remote_buffer_ids"]]
            remote = self.gpus[thread.rank]["remote_buffers"][refs[buffer["buffer_id"]]]
            rank, letter = remote["rank"], remote["type"]
        assert 0 <= index < self.gpus[rank][CHUNKS[letter]], "outside of the buffer"
        return rank, letter, index

    def _real(self, address: Address, check: bool = True) -> Address:
        assert not check or address[0] in self.started, "memory of a rank that is not running"
        return self.alias.get(address, address)

    def _read(self, address: Address) -> Value:
        return self.memory[self._real(address)]

    def _write(self, address: Address, value: Value, check: bool = True) -> None:
        self.memory[self._real(address, check)] = value

    def result(self, rank: int, slot: int) -> Value:
        """Returns the value in a receive slot after a launch."""
        return self.memory[self._real((rank, "o", slot), check=False)]
