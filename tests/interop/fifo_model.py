"""An MSCCL runtime in plain Python, to judge XML by: nothing of hccc is used here.

`load` reads a file as strictly as the runtimes' hand-written parser does (msccl-formats
§2) and holds it against a dialect's limits (msccl-formats §1, §6); `run` executes one tile in a
random interleaving, FIFOs of the protocol's depth, flags as msccl-formats §5 says, and memory that
holds which contributions were summed.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from dataclasses import dataclass, field

Value = Counter[tuple[int, int]]  # (rank, input slot) -> times it was added
Address = tuple[int, str, int]

DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
STEPS = {"msccl": 256, "executor": 64}
BLOCKS = {"msccl": 216, "executor": 64}
REQUIRED = {
    "algo": "name proto nchannels nchunksperloop ngpus coll inplace outofplace minBytes maxBytes",
    "gpu": "id i_chunks o_chunks s_chunks",
    "tb": "id send recv chan",
    "step": "s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep",
}
COLLECTIVES = {
    "msccl": "allreduce allgather reduce broadcast alltoall reduce_scatter custom",
    "executor": "allreduce allgather reduce broadcast alltoall reducescatter gather scatter",
}
_LINE = re.compile(r'( *)<(/?)(\w+)((?: \w+="[^"<>&\t]*")*)(/?)>')


@dataclass(slots=True)
class Element:
    """One element: its attributes, numbers as int, and its children."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def __getitem__(self, key: str) -> int:
        return int(self.attributes[key])


def load(text: str, dialect: str) -> Element:
    """Parses the <algo> of `text`; asserts every rule of the lexer and every limit."""
    stack = [Element("", {})]
    for line in text.removesuffix("\n").split("\n"):
        found = _LINE.fullmatch(line)
        assert found is not None, line
        _, closes, name, inside, alone = found.groups()
        if closes:
            assert stack.pop().name == name
            continue
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', inside))
        assert list(attributes) == REQUIRED[name].split(), line
        assert len(attributes) <= 16 and all(len(v) <= 255 for v in attributes.values())
        element = Element(name, attributes)
        stack[-1].children.append(element)
        assert len(stack[-1].children) <= 1024
        if not alone:
            stack.append(element)
    (algo,) = stack[0].children
    _limits(algo, dialect)
    return algo


def _limits(algo: Element, dialect: str) -> None:
    assert algo.attributes["coll"] in COLLECTIVES[dialect].split()
    assert algo["nchannels"] == 1 + max(
        [b["chan"] for g in algo.children for b in g.children], default=0
    )
    assert algo["nchannels"] <= 32
    assert [g["id"] for g in algo.children] == list(range(algo["ngpus"]))
    assert algo["minBytes"] >= 0 and (algo["minBytes"] <= algo["maxBytes"] or not algo["maxBytes"])
    for gpu in algo.children:
        assert len(gpu.children) <= BLOCKS[dialect]
        assert sorted(b["id"] for b in gpu.children) == list(range(len(gpu.children)))
        kept = 1 + algo["ngpus"] + sum(1 + len(b.children) for b in gpu.children)
        assert kept <= 4096
        if dialect == "msccl":
            for chunks, per in (("i_chunks", "allgather"), ("o_chunks", "reduce_scatter")):
                times = algo["ngpus"] if algo.attributes["coll"] == per else 1
                assert gpu[chunks] in (0, algo["nchunksperloop"] // times)
        _blocks(gpu, dialect)


def _blocks(gpu: Element, dialect: str) -> None:
    for end in ("send", "recv"):
        used = Counter((b[end], b["chan"]) for b in gpu.children if b[end] >= 0)
        assert all(times == 1 for times in used.values())
        per_channel = Counter(chan for _, chan in used)
        assert all(times <= 32 for times in per_channel.values())
    by_id = {block["id"]: block for block in gpu.children}
    for block in gpu.children:
        assert len(block.children) <= STEPS[dialect]
        chain = False
        for step in block.children:  # exports wait only for steps that signal
            if step["depid"] >= 0:
                target = by_id[step["depid"]].children[step["deps"]]
                assert target["hasdep"] == 1 and target.attributes["type"] != "nop"
        for s, step in enumerate(block.children):
            assert step["s"] == s
            kind = step.attributes["type"]
            assert step["depid"] <= 127 and -1 <= step["depid"] < len(gpu.children)
            if chain or kind == "nop":
                assert step["depid"] >= 0  # "chain of dependences" (topo.cc:1106)
            chain = kind == "nop"
            if chain:
                continue
            assert 1 <= step["cnt"] <= 71
            for off in ("srcoff", "dstoff"):
                assert 0 <= step[off] <= 32767
        assert not chain


@dataclass(slots=True)
class _Thread:
    rank: int
    block: Element
    at: int = 0  # next step in the file
    done: int = -1  # the flag: the last signalling step


@dataclass(slots=True)
class FifoMachine:
    """Memory and FIFOs of all ranks. `alias`: the real address behind one of an in-place call."""

    algo: Element
    alias: dict[Address, Address]
    memory: dict[Address, Value] = field(default_factory=dict)
    fifos: dict[tuple[int, int, int], deque[list[Value]]] = field(default_factory=dict)

    def read(self, rank: int, buffer: str, slot: int) -> Value:
        """Returns the value of a slot; it must have been written."""
        address = (rank, buffer, slot)
        return self.memory[self.alias.get(address, address)]

    def write(self, rank: int, buffer: str, slot: int, value: Value) -> None:
        """Overwrites."""
        address = (rank, buffer, slot)
        self.memory[self.alias.get(address, address)] = value


def run(algo: Element, inputs: list[int], alias: dict[Address, Address], seed: int) -> FifoMachine:
    """Executes one tile of small chunks. inputs[r]: chunks in rank r's send buffer.

    Raises AssertionError when no block can go on, KeyError when memory is read before a write.
    """
    rng = random.Random(seed)
    machine = FifoMachine(algo, alias)
    for rank, slots in enumerate(inputs):
        for slot in range(slots):
            machine.write(rank, "i", slot, Counter({(rank, slot): 1}))
    threads = {g["id"]: [_Thread(g["id"], b) for b in g.children] for g in algo.children}
    by_id = {r: {t.block["id"]: t for t in ts} for r, ts in threads.items()}
    live = [t for ts in threads.values() for t in ts if t.block.children]
    while live:
        rng.shuffle(live)
        moved = False
        for thread in live:
            budget = rng.randrange(1, 4)
            while budget and thread.at < len(thread.block.children):
                if not _advance(machine, thread, by_id[thread.rank]):
                    break
                moved, budget = True, budget - 1
        assert moved, "the schedule hangs"
        live = [t for t in live if t.at < len(t.block.children)]
    return machine


def _advance(machine: FifoMachine, thread: _Thread, mates: dict[int, _Thread]) -> bool:
    step = thread.block.children[thread.at]
    if step["depid"] >= 0 and mates[step["depid"]].done < step["deps"]:
        return False
    kind, rank, block = step.attributes["type"], thread.rank, thread.block
    if kind != "nop" and not _perform(machine, step, kind, rank, block):
        return False
    if kind != "nop" and step["hasdep"]:
        thread.done = thread.at
    thread.at += 1
    return True


def _perform(machine: FifoMachine, step: Element, kind: str, rank: int, block: Element) -> bool:
    takes, gives = kind in ("r", "rcs", "rrc", "rrs", "rrcs"), kind in ("s", "rcs", "rrs", "rrcs")
    inbox = machine.fifos.setdefault((block["recv"], rank, block["chan"]), deque())
    outbox = machine.fifos.setdefault((rank, block["send"], block["chan"]), deque())
    depth = DEPTH[machine.algo.attributes["proto"]]
    if (takes and not inbox) or (gives and len(outbox) >= depth):
        return False
    message = inbox.popleft() if takes else [Counter() for _ in range(step["cnt"])]
    assert len(message) == step["cnt"], "two ends disagree on the size of a message"
    sent = []
    for k, value in enumerate(message):
        if kind in ("s", "cpy", "re", "rrc", "rrs", "rrcs"):
            value = value + machine.read(rank, step.attributes["srcbuf"], step["srcoff"] + k)
        target = (rank, step.attributes["dstbuf"], step["dstoff"] + k)
        if kind == "re":
            value = value + machine.read(*target)
        if kind in ("r", "cpy", "re", "rcs", "rrc", "rrcs"):
            machine.write(*target, value)
        sent.append(value)
    if gives:
        outbox.append(sent)
    return True
