"""gcn: the memory order of kernels for gfx9, read from their assembly (kernel-protocol §7).

A wavefront counts its outstanding stores, write-backs and invalidations in one counter, vmcnt.
Two laws make a barrier and a release what the protocol says of them, and hold on every path:

1. at `s_barrier` nothing is outstanding, so that any wavefront may raise the flag after it;
2. at a store no write-back is, so that the flag does not overtake the data. (The compare-and-swap
   that claims a fault record announces no data.)

Branches are followed whichever way they may go; at the entry of a function, and after a call,
anything may be outstanding. Time: linear in the instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

STORE, WRITE_BACK, INVALIDATION = 1, 2, 4
ANYTHING = STORE | WRITE_BACK | INVALIDATION
NAMES = {STORE: "a store", WRITE_BACK: "a write-back", INVALIDATION: "an invalidation"}

# Instructions that begin each; spills to private memory (scratch_store, buffer_store) do not count.
BEGINS = (
    (re.compile(r"(global|flat)_(store|atomic)"), STORE),
    (re.compile(r"buffer_wbl2"), WRITE_BACK),
    (re.compile(r"buffer_(inv|wbinvl1)"), INVALIDATION),
)
CALLS = {"s_swappc_b64", "s_call_b64"}
ENDS = {"s_endpgm", "s_trap"}
RETURN_ADDRESS = "s[30:31]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a function's code. line: from 1, in the whole text."""

    line: int
    name: str
    operands: str


@dataclass(frozen=True, slots=True)
class GcnFunction:
    """A function or kernel. labels: the instruction that each stands before."""

    name: str
    kernel: bool
    code: tuple[Instruction, ...]
    labels: dict[str, int]

    def count(self, name: str) -> int:
        """Returns the number of instructions of this name."""
        return sum(i.name == name for i in self.code)


@dataclass(frozen=True, slots=True)
class Fault:
    """An instruction that may execute too early."""

    function: str
    line: int
    name: str
    outstanding: str

    def __str__(self) -> str:
        return (
            f"{self.function}:{self.line}: at {self.name} there is outstanding {self.outstanding}"
        )


def functions(text: str) -> Iterator[GcnFunction]:
    """Yields the functions of a module in assembly."""
    kernels = set(re.findall(r"^\s*\.amdhsa_kernel (\S+)", text, re.M))
    name, code, labels = "", list[Instruction](), dict[str, int]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition(";")[0].strip()
        if begun := re.match(r"\.type\s+(\S+),@function", line):
            name, code, labels = begun[1], [], {}
        elif line.startswith(".Lfunc_end"):
            yield GcnFunction(name, name in kernels, tuple(code), labels)
            name = ""
        elif name and (label := re.fullmatch(r"([\w.$]+):", line)):
            labels[label[1]] = len(code)
        elif name and re.match(r"[a-z]+_", line):
            what, _, operands = line.partition(" ") if " " in line else line.partition("\t")
            code.append(Instruction(number, what, operands.strip()))


def far_target(f: GcnFunction, at: int) -> int:
    """Returns a jump's target in registers, computed by the two instructions before it."""
    distance = re.search(r"\((\S+)-\.Lpost_getpc\d+\)", f.code[max(at - 1, 0)].operands)
    if not distance:
        i = f.code[at]
        raise ValueError(f"{f.name}:{i.line}: where does {i.name} {i.operands} lead?")
    return f.labels[distance[1]]


def successors(f: GcnFunction, at: int) -> list[int]:
    """Returns the instructions that may follow `at`. ValueError: a jump's target is not known."""
    i = f.code[at]
    if i.name in ENDS:
        return []
    if i.name == "s_setpc_b64":
        return [] if i.operands == RETURN_ADDRESS else [far_target(f, at)]
    if i.name == "s_branch":
        return [f.labels[i.operands]]
    return [at + 1, f.labels[i.operands]] if i.name.startswith("s_cbranch") else [at + 1]


def after(i: Instruction, outstanding: int) -> int:
    """Returns the set of operations outstanding after an instruction, given the set before it."""
    if i.name == "s_waitcnt" and "vmcnt(0)" in i.operands:
        return 0
    if i.name in CALLS:
        return ANYTHING
    return outstanding | next((bit for begins, bit in BEGINS if begins.match(i.name)), 0)


def forbidden(i: Instruction) -> int:
    """Returns the set of operations that must not be outstanding when an instruction executes."""
    if "cmpswap" in i.name:
        return 0
    if i.name == "s_barrier":
        return ANYTHING
    return WRITE_BACK if BEGINS[0][0].match(i.name) else 0


def before_each(f: GcnFunction) -> list[int]:
    """Returns what may be outstanding before each instruction: the union over all paths to it."""
    found = [-1] * len(f.code)  # -1: not reached
    todo = [(0, 0 if f.kernel else ANYTHING)]
    while todo:
        at, outstanding = todo.pop()
        known = max(found[at], 0) | outstanding
        if known == found[at]:
            continue
        found[at] = known
        then = after(f.code[at], known)
        todo.extend((next_at, then) for next_at in successors(f, at))
    return found


def faults(f: GcnFunction) -> list[Fault]:
    """Lists where a function breaks a law, by line."""
    found = []
    for i, outstanding in zip(f.code, before_each(f), strict=True):
        wrong = max(outstanding, 0) & forbidden(i)
        if wrong:
            said = ", ".join(name for bit, name in NAMES.items() if wrong & bit)
            found.append(Fault(f.name, i.line, i.name, said))
    return found
