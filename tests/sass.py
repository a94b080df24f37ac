"""sass: what kernels for NVIDIA cost, read from their machine code.

Bytes in flight are those of the loads of global memory that a thread has issued before an
instruction uses the first of them; a loop's are the most along its body, in the order of its code.

The depth of an instruction is the number of loads on which what it reads depends, or whether it is
executed: a thread waits for so many one after the other. It is the most over the paths without
their loops' ways back, where each wait finds at its first poll what it waits for; what goes through
shared memory is as deep as anything stored there before. Time: linear in the instructions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?(\S+)\s*(.*?)\s*;")
_LABEL = re.compile(r"(\.L_x?_?\w+|\$\w+\$\w+):")
_TARGET = re.compile(r"`\((\.L_x?_?\w+)\)")
_REGISTER = re.compile(r"\bU?R\d+\b|\bU?P\d\b")
_COMMA = re.compile(r",(?![^\[]*\])")
_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")
_FLAT = {"LD", "LDG"}
_STORES = {"ST", "STG", "STS", "STL", "RED", "REDG"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. guard: the predicate that it is executed under, or nothing."""

    address: int
    guard: str
    name: str
    operands: tuple[str, ...]

    @property
    def base(self) -> str:
        """The name without its modifiers."""
        return self.name.partition(".")[0]

    @property
    def words(self) -> int:
        """The registers of 32 bits that a load or a store moves."""
        for sign, words in ((".256", 8), (".128", 4), (".64", 2)):
            if sign in self.name:
                return words
        return 1

    @property
    def loads(self) -> bool:
        """Whether it loads from global memory, or from an address of any kind."""
        return self.base in _FLAT

    def _parts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the operands that it writes and those that it reads."""
        if self.base in _STORES or self.base in {"BRA", "BAR", "EXIT", "MEMBAR"}:
            return (), self.operands
        many = 2 if self.base in {"ISETP", "FSETP", "PLOP3", "DSETP", "VOTE"} else 1
        return self.operands[:many], self.operands[many:]

    def writes(self) -> list[str]:
        """Lists the registers that it writes."""
        found = [r for o in self._parts()[0] for r in _REGISTER.findall(o)]
        wide = self.words if self.loads or self.base in {"LDS", "LDL", "LDC", "ULDC"} else 1
        if wide == 1 and (".WIDE" in self.name or self.base in {"LDC", "ULDC"}):
            wide = 2 if ".WIDE" in self.name or ".64" in self.name else 1
        return [r for first in found for r in _run(first, wide)]

    def reads(self) -> list[str]:
        """Lists the registers that it reads."""
        reads = [self.guard.lstrip("!")] if self.guard else []
        for place, operand in enumerate(self._parts()[1]):
            for r in _REGISTER.findall(operand):
                stored = self.base in _STORES and "[" not in operand and place > 0
                reads += _run(r, self.words if stored else 2 if ".64" in operand else 1)
        return reads


def _run(first: str, n: int) -> list[str]:
    """Returns n registers from this one on."""
    kind, number = re.sub(r"\d", "", first), int(re.sub(r"\D", "", first))
    return [f"{kind}{number + i}" for i in range(n)] if n > 1 else [first]


def _within(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1] and inner != outer


@dataclass(frozen=True, slots=True)
class Function:
    """A function's code, with that of functions that only it calls. labels: the instruction that
    each stands before, and where those functions begin."""

    name: str
    code: tuple[Instruction, ...]
    labels: dict[str, int]

    def count(self, *names: str) -> int:
        """Counts the instructions whose names begin so."""
        return sum(i.name.startswith(names) for i in self.code)

    def called(self, name: str) -> Iterator[Instruction]:
        """Yields the code of the functions whose names have this in them."""
        begins = sorted((at, label) for label, at in self.labels.items() if label[0] == "$")
        for (first, label), (last, _) in pairwise([*begins, (len(self.code), "")]):
            if name in label:
                yield from self.code[first:last]

    def target(self, at: int) -> int | None:
        """Returns where a jump leads, if the instruction at this place is one."""
        i = self.code[at]
        if i.base not in {"BRA", "BSSY"} or not (to := _TARGET.search(" ".join(i.operands))):
            return None
        return self.labels[to[1]] if i.base == "BRA" else None

    def loops(self) -> Iterator[tuple[int, int]]:
        """Yields the first and the last instruction of each loop."""
        for at in range(len(self.code)):
            to = self.target(at)
            if to is not None and to < at:
                yield to, at

    def is_flag_store(self, at: int) -> bool:
        """Returns whether the instruction stores a counter that other blocks or ranks poll."""
        return self.code[at].name.startswith("STG.E.STRONG")

    def rare(self) -> set[int]:
        """Returns the instructions that only a wait that lasts executes, or a lost launch."""
        every = sorted(self.loops(), key=lambda loop: loop[1] - loop[0])
        found = set[int]()
        for at, i in enumerate(self.code):
            if i.base == "NANOSLEEP":
                first, last = next(loop for loop in every if loop[0] <= at <= loop[1])
                found |= set(range(first, last + 1))
            elif i.base == "ATOMG":
                found.add(at)
        return found

    def _loop(self, of: tuple[int, int]) -> Loop:
        return loop_of(self.code[of[0] : of[1] + 1], of[1] + 1)

    def moving(self) -> list[Loop]:
        """Lists the innermost loops that load 16 bytes at a time, in the order of addresses."""
        every = sorted(self.loops())
        found = []
        for first, last in every:
            wide = [self._loop(one).wide_loads > 0 for one in every if _within(one, (first, last))]
            loop = self._loop((first, last))
            if loop.wide_loads and not any(wide):
                found.append(loop)
        return found


@dataclass(frozen=True, slots=True)
class Loop:
    """What one turn of a loop does, in instructions, and the most bytes that are in flight.

    kept: loads of 16 bytes, of the wide ones, that may stay in L1, where neighbours find them.
    narrow: accesses of global memory of less than 16 bytes. end: the instruction after it.
    """

    instructions: int
    wide_loads: int
    wide_stores: int
    kept: int
    narrow: int
    local: int  # of spilled registers
    in_flight: int
    end: int


def loop_of(code: tuple[Instruction, ...], end: int) -> Loop:
    """Counts a loop's body."""
    live, of, most = dict[int, int](), dict[str, int](), 0
    for at, i in enumerate(code):
        for r in i.reads():
            if r in of:
                live.pop(of[r], None)
        if i.loads:
            live[at] = 4 * i.words
        for r in i.writes():
            of.pop(r, None)
            if i.loads:
                of[r] = at
        most = max(most, sum(live.values()))
    return Loop(
        len(code),
        sum(i.loads and i.words >= 4 for i in code),
        sum(i.base in {"ST", "STG"} and i.words >= 4 for i in code),
        sum(i.loads and i.words >= 4 and ".NA" not in i.name for i in code),
        sum((i.loads or i.base in {"ST", "STG"}) and i.words < 4 for i in code),
        sum(i.base in {"LDL", "STL"} for i in code),
        most,
        end,
    )


@dataclass(slots=True)
class Depths:
    """The loads that each register depends on, the path itself (`now`) and what is shared."""

    of: dict[str, int] = field(default_factory=dict)
    now: int = 0
    shared: int = 0

    def copy(self) -> Depths:
        return Depths(dict(self.of), self.now, self.shared)

    def join(self, other: Depths) -> None:
        for r, depth in other.of.items():
            self.of[r] = max(self.of.get(r, 0), depth)
        self.now = max(self.now, other.now)
        self.shared = max(self.shared, other.shared)

    def step(self, i: Instruction) -> int:
        """Goes past an instruction; returns the depth of what it reads."""
        depth = max([self.now, *(self.of.get(r, 0) for r in i.reads())])
        if i.base in {"BRA", "BAR"} and i.guard:
            self.now = depth
        if i.base == "BAR" and i.operands:  # BAR.RED: the block's vote
            self.now = depth
        if i.base == "STS":
            self.shared = max(self.shared, depth)
        result = depth + i.loads
        if i.base == "LDS":
            result = max(result, self.shared)
        for r in i.writes():
            kept = self.of.get(r, 0) if i.guard else 0
            self.of[r] = max(result, kept)
        return depth


def depths(f: Function) -> list[int]:
    """Returns for each instruction the loads that it waits for, one after the other."""
    before: list[Depths | None] = [None] * (len(f.code) + 1)
    before[0] = Depths()
    found = [0] * len(f.code)
    cold = f.rare()
    for at, i in enumerate(f.code):
        state = before[at]
        if state is None or at in cold:
            continue
        state = state.copy()
        found[at] = state.step(i)
        to = f.target(at)
        ends = i.base in {"EXIT", "RET"} or (i.base == "BRA")
        nexts = [to] if to is not None and to > at else []
        if not ends or i.guard:
            nexts.append(at + 1)
        for then in nexts:
            if before[then] is None:
                before[then] = state.copy()
            else:
                before[then].join(state)  # type: ignore[union-attr]
    return found


def disassembler() -> str | None:
    """Returns the path of nvdisasm, of the toolkit or of its package, if there is one."""
    inside = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path=str(inside))


def functions(cubin: Path) -> Iterator[Function]:
    """Yields the functions of a module."""
    tool = disassembler()
    assert tool, "there is no nvdisasm"
    text = subprocess.run([tool, "-c", str(cubin)], capture_output=True, text=True, check=True)
    yield from parsed(text.stdout)


def parsed(text: str) -> Iterator[Function]:
    """Yields the functions of what nvdisasm prints."""
    name, code, labels = "", list[Instruction](), dict[str, int]()
    for line in text.splitlines():
        if begun := re.match(r"\.text\.(\S+):", line):
            if code:
                yield Function(name, tuple(code), labels)
            name, code, labels = begun[1], [], {}
        elif label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif (i := _LINE.match(line)) and i[3] != "NOP":
            operands = tuple(o.strip() for o in _COMMA.split(i[4])) if i[4] else ()
            code.append(Instruction(int(i[1], 16), i[2] or "", i[3], operands))
    if code:
        yield Function(name, tuple(code), labels)


@dataclass(frozen=True, slots=True)
class Used:
    """What ptxas says of a kernel's registers and of the bytes that its functions spill."""

    registers: int
    spills: int


def used(said: str) -> Used:
    """Reads what `ptxas -v` says of a module with one kernel."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", said)]
    return Used(max(registers), max(map(int, _SPILLS.findall(said)), default=0))
