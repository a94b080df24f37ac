"""encode: makes of a module's text the tables that `machine.cpp` executes.

A thread has a frame for each function that it is in: slots of 8 bytes for registers, then the
constants of the function, then parameters and own memory. Operands are offsets in the frame.
Registers share slots where they are not alive together, so that thousands of threads are small.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from hccc.runtime.machines.kernel import Array
from hccc.runtime.machines.ptx.parse import SIZES, Function, Instruction, Module, refuse

OPERANDS = 10
INSTRUCTION = np.dtype(
    [
        ("offset", "i8"),
        ("handler", "i4"),
        ("guard", "i4"),  # -1: none
        ("a", "i4", OPERANDS),  # -1: none
        ("target", "i4"),
        ("line", "i4"),
        ("negated", "u1"),
        ("space", "u1"),
        ("order", "u1"),
        ("scope", "u1"),
        ("count", "u1"),  # registers of a vector
        ("reserved", "u1", 7),
    ],
    align=True,
)
FUNCTION = np.dtype([(name, "i4") for name in ("code", "frame", "at", "constants", "first", "end")])
COPY = np.dtype([("source", "i4"), ("target", "i4"), ("size", "i4")])

SPACES = ("generic", "global", "const", "shared", "local", "frame")
ORDERS = ("weak", "nc", "volatile", "mmio", "relaxed", "acquire", "release", "acq_rel", "sc")
SCOPES = ("cta", "cluster", "gpu", "sys")
SPECIAL = {
    name: index
    for index, name in enumerate(
        [
            *(f"%{of}.{axis}" for of in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
            *("%laneid", "%warpid", "%smid", "%globaltimer", "%globaltimer_lo", "%clock64"),
        ]
    )
}
Guard = tuple[int, bool]  # the offset of a predicate, and whether its opposite is meant
ALWAYS: Guard = (-1, False)
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_FENCES = {"membar.cta": "cta", "membar.gl": "gpu", "membar.sys": "sys"}
_HINT = re.compile(r"(L1|L2)::\w+|ca|cg|cs|cv|lu|wb|wt")
_ADDRESS = re.compile(r"\[([%\w$]*)(?:\+?(-?\w+))?\]")


@dataclass(frozen=True, slots=True)
class PtxProgram:
    """What the machine executes: tables, and the text that each instruction comes from."""

    module: Module
    code: Array
    functions: Array
    constants: Array
    copies: Array
    memory: Array  # of global and constant variables
    shared_bytes: int
    stack_bytes: int
    origins: tuple[Instruction, ...]
    opcodes: tuple[str, ...]  # as the machine names them; `handler` counts in it
    names: dict[str, int]  # of functions
    parameters: tuple[int, ...]  # where those of each function begin in its frame


def encode(module: Module) -> PtxProgram:
    """Returns the tables of a module. Raises UserError E487 for what the machine does not run."""
    return _Encoder(module).program()


class _Frame:
    """The layout of a function's frame: registers, parameters and own memory, constants."""

    def __init__(self, function: Function) -> None:
        self.at, end = slots(function)
        for v in function.variables:
            if v.space != "reg":
                end = -(-end // v.align) * v.align
                self.at[id(v)] = end
                end += v.size
        self.first = -(-end // 8) * 8  # of the constants
        self._values: dict[tuple[str, int], int] = {}

    @property
    def size(self) -> int:
        """The bytes of the frame."""
        return -(-(self.first + 8 * len(self._values)) // 16) * 16

    @property
    def constants(self) -> list[int]:
        """The constants, in order."""
        return [value if kind == "value" else 0 for kind, value in self._values]

    def constant(self, value: int) -> int:
        """Returns the offset of a constant."""
        return self._slot("value", value & (1 << 64) - 1)

    def opposite(self, at: int) -> int:
        """Returns the offset of a slot for the opposite of the predicate at `at`."""
        return self._slot("opposite", at)

    def _slot(self, kind: str, value: int) -> int:
        return self._values.setdefault((kind, value), self.first + 8 * len(self._values))


_NO_RESULT = ("st.", "bra", "red.", "multimem.st.", "multimem.red.")


def slots(function: Function) -> tuple[dict[int, int], int]:
    """Returns the offset of each register in the frame, by its identity, and the bytes of all.

    A register is alive from the first line that names it to the last, and in the whole of each
    loop that it is alive before or after; one that is read first, everywhere. Linear in the
    instructions, times the loops around one.
    """
    first, last = dict[int, int](), dict[int, int]()
    for at, i in enumerate(function.code):
        written = {id(i.names[w]) for w in re.findall(r"[%\w$]+", _results(i)) if w in i.names}
        for v in i.names.values():
            if v.space != "reg":
                continue
            if id(v) not in first:
                first[id(v)] = at if id(v) in written and not i.guard else 0
            last[id(v)] = at
    loops = sorted(
        (begin, at)
        for at, i in enumerate(function.code)
        for word in i.operands
        if (begin := function.labels.get(word, at)) < at
        or (word in function.labels and begin == at)
    )
    changed = True
    while changed:
        changed = False
        for begin, end in sorted(loops, key=lambda loop: loop[1] - loop[0]):
            for register, since in first.items():
                if since < begin <= last[register] < end:
                    last[register], changed = end, True
                elif begin < since <= end < last[register]:  # code that nvcc has put before
                    first[register], changed = begin, True
    places, free, taken, n = dict[int, int](), list[int](), list[tuple[int, int]](), 0
    for register in sorted(first, key=first.__getitem__):
        while taken and taken[0][0] < first[register]:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if free:
            places[register] = heapq.heappop(free)
        else:
            places[register], n = 8 * n, n + 1
        heapq.heappush(taken, (last[register], places[register]))
    return places, 8 * n


def _results(i: Instruction) -> str:
    """Returns the operand that an instruction writes."""
    return "" if i.opcode.startswith(_NO_RESULT) or not i.operands else i.operands[0]


class _Encoder:
    """Encodes a module, function by function."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._rows: list[tuple[Any, ...]] = []
        self._origins: list[Instruction] = []
        self._copies: list[tuple[int, int, int]] = []
        self._opcodes: dict[str, int] = {}
        self._names = {f.name: i for i, f in enumerate(module.functions)}
        self._addresses: dict[int, int] = {}
        self._memory, self._shared_bytes = self._place()
        self._frames = [_Frame(f) for f in module.functions]

    def program(self) -> PtxProgram:
        """Encodes all functions."""
        functions, constants = list[tuple[int, ...]](), list[int]()
        for f, frame in zip(self._module.functions, self._frames, strict=True):
            begin, starts = len(self._rows), list[int]()
            for i in f.code:
                starts.append(len(self._rows))
                self._one(frame, i)
            starts.append(len(self._rows))
            if f.code:
                self._add(f.code[-1], "ret")  # where the text does not
            self._jump(f, begin, starts)
            functions.append(
                (begin, frame.size, frame.first, len(frame.constants), len(constants), 0)
            )
            constants += frame.constants
        return PtxProgram(
            module=self._module,
            code=np.array(self._rows, INSTRUCTION),
            functions=np.array(functions, FUNCTION),
            constants=np.array(constants or [0], "u8"),
            copies=np.array(self._copies or [(0, 0, 0)], COPY),
            memory=self._memory,
            shared_bytes=self._shared_bytes,
            stack_bytes=self._stack_bytes(),
            origins=tuple(self._origins),
            opcodes=tuple(self._opcodes),
            names=self._names,
            parameters=tuple(
                frame.at[id(f.params[0])] if f.params else 0
                for f, frame in zip(self._module.functions, self._frames, strict=True)
            ),
        )

    def _place(self) -> tuple[Array, int]:
        """Places the module's memory: global variables by address, shared ones by offset."""
        ends = {"global": 0, "shared": 0}
        for v in self._module.variables:
            space = "shared" if v.space == "shared" else "global"
            at = -(-ends[space] // v.align) * v.align
            self._addresses[id(v)] = at
            ends[space] = at + v.size
        memory = np.zeros(-(-ends["global"] // 128) * 128 + 256, np.uint8)
        base = -(-memory.ctypes.data // 128) * 128
        for v in self._module.variables:
            if v.space != "shared":
                at = self._addresses[id(v)] + base - memory.ctypes.data
                memory[at : at + len(v.initial)] = np.frombuffer(v.initial, np.uint8)
                self._addresses[id(v)] += base
        return memory, ends["shared"]

    def _stack_bytes(self) -> int:
        """Returns the bytes of the deepest frames. Raises UserError E487 for recursion."""
        calls = {
            f.name: [(i.line, w) for i in f.code for w in i.operands if w in self._names]
            for f in self._module.functions
        }

        def depth(name: str, above: tuple[str, ...]) -> int:
            for line, other in calls[name]:
                if other in above:
                    raise refuse(f"{other} calls itself", line)
            below = (depth(other, (*above, other)) for _, other in calls[name])
            return self._frames[self._names[name]].size + max(below, default=0)

        return max((depth(f.name, (f.name,)) for f in self._module.functions if f.entry), default=0)

    def _jump(self, f: Function, begin: int, starts: list[int]) -> None:
        """Sets the targets of a function's jumps. starts: the row of each instruction."""
        bra = self._opcodes.get("bra")
        for at in range(begin, len(self._rows)):
            if self._rows[at][1] == bra:
                label = self._origins[at].operands[0]
                if label not in f.labels:
                    raise refuse(f"a jump to {label}", self._origins[at].line)
                self._rows[at] = (*self._rows[at][:4], starts[f.labels[label]], *self._rows[at][5:])

    def _add(
        self,
        i: Instruction,
        opcode: str,
        a: list[int] | None = None,
        *,
        guard: Guard = ALWAYS,
        offset: int = 0,
        target: int = 0,
        how: tuple[int, int, int, int] = (0, 0, 0, 1),
    ) -> None:
        """Adds an instruction. how: space, order, scope and count."""
        a = [*(a or []), *[-1] * (OPERANDS - len(a or []))]
        handler = self._opcodes.setdefault(opcode, len(self._opcodes))
        row = (offset, handler, guard[0], a, target, i.line, guard[1], *how, [0] * 7)
        self._rows.append(row)
        self._origins.append(i)

    def _one(self, frame: _Frame, i: Instruction) -> None:
        """Encodes an instruction."""
        base = i.opcode.partition(".")[0]
        guard = ALWAYS
        if i.guard:
            guard = frame.at[id(i.names[i.guard.lstrip("!")])], i.guard.startswith("!")
        if base in ("ld", "st", "atom", "red"):
            self._access(frame, i, base, guard)
        elif base == "multimem":
            self._multicast(frame, i, guard)
        elif i.opcode == "fence.proxy.alias":
            self._add(i, "nothing", guard=guard)  # whatever an address is of, memory is one
        elif base in ("fence", "membar"):
            scope = [_FENCES[i.opcode]] if base == "membar" else i.opcode.split(".")[1:]
            self._add(i, "fence", how=_how(i, scope), guard=guard)
        elif base == "bra":
            self._add(i, "bra", guard=guard)
        elif base == "call":
            self._call(frame, i, guard)
        elif base == "mov":
            self._move(frame, i, guard)
        else:
            slots = [self._operand(frame, i, w) for o in i.operands for w in _atoms(o)]
            self._add(i, _named(i.opcode), slots, guard=guard)

    def _access(self, frame: _Frame, i: Instruction, base: str, guard: Guard) -> None:
        """Encodes an access of memory: registers, then the register of the address."""
        words = i.opcode.split(".")[1:]
        *words, kind = words
        if base in ("atom", "red"):
            operation = next((w for w in words if w in ATOMICS), "")
            words.remove(operation) if operation else None
            kind = f"{operation}.{kind}"
            base = "atom"
        place = next((o for o in i.operands if o.startswith("[")), "")
        if not (found := _ADDRESS.fullmatch(place)):
            raise refuse(f"the address {place} of `{i.opcode}`", i.line)
        registers = [
            self._operand(frame, i, w) for o in i.operands if o != place for w in _atoms(o)
        ]
        if i.opcode.startswith("red."):
            registers.insert(0, -1)
        address, offset, framed = self._address(frame, i, found[1], int(found[2] or "0", 0))
        how = _how(i, words)
        how = (SPACES.index("frame"), *how[1:]) if framed else how
        self._add(i, f"{base}.{kind}", [address, *registers], offset=offset, how=how, guard=guard)

    def _multicast(self, frame: _Frame, i: Instruction, guard: Guard) -> None:
        """Encodes an access by a multicast address: its register, then those of values."""
        _, access, *words, kind = i.opcode.split(".")
        operation = next((w for w in words if w in ATOMICS), "")
        words = [w for w in words if w not in (operation, "acc::f32")]
        place = next((o for o in i.operands if o.startswith("[")), "")
        if not (found := _ADDRESS.fullmatch(place)):
            raise refuse(f"the address {place} of `{i.opcode}`", i.line)
        values = [self._operand(frame, i, w) for o in i.operands if o != place for w in _atoms(o)]
        address, offset, _ = self._address(frame, i, found[1], int(found[2] or "0", 0))
        name = ".".join(w for w in ("multimem", access, operation, kind) if w)
        how = _how(i, words)
        self._add(i, name, [address, *values], offset=offset, how=how, guard=guard)

    def _address(
        self, frame: _Frame, i: Instruction, name: str, offset: int
    ) -> tuple[int, int, bool]:
        """Returns the register of an address, the offset, and whether that is the frame's."""
        variable = i.names.get(name)
        if variable is not None and variable.space in ("param", "local"):
            return -1, frame.at[id(variable)] + offset, True
        if variable is not None and variable.space == "reg":
            return frame.at[id(variable)], offset, False
        if variable is None and name.startswith("%"):
            raise refuse(f"the register {name}", i.line)
        base = self._addresses[id(variable)] if variable is not None else int(name or "0", 0)
        return frame.constant(base), offset, False

    def _move(self, frame: _Frame, i: Instruction, guard: Guard) -> None:
        """Encodes a move: of a register, a special one, an address, or parts of a register."""
        target, source = i.operands
        variable = i.names.get(source)
        if target.startswith("{") or source.startswith("{"):
            words = [self._operand(frame, i, w) for o in i.operands for w in _atoms(o)]
            bits = 8 * SIZES[i.opcode.split(".")[1]] // (len(words) - 1)
            way = "unpack" if target.startswith("{") else "pack"
            how = (0, 0, 0, len(words) - 1)
            self._add(i, f"mov.{way}.b{bits}", words, how=how, guard=guard)
        elif source in SPECIAL:
            to = self._operand(frame, i, target)
            self._add(i, "mov.special", [to], offset=SPECIAL[source], guard=guard)
        elif variable is not None and variable.space in ("param", "local"):
            to = self._operand(frame, i, target)
            self._add(i, "mov.frame", [to], offset=frame.at[id(variable)], guard=guard)
        else:
            words = [self._operand(frame, i, w) for w in i.operands]
            self._add(i, "mov", words, guard=guard)

    def _call(self, frame: _Frame, i: Instruction, guard: Guard) -> None:
        """Encodes a call: the parameters to copy before it, and the results after it."""
        lists = [o for o in i.operands if o.startswith("(")]
        name = next(o for o in i.operands if not o.startswith("("))
        if name not in self._names:
            raise refuse(f"a call of {name}, which is not in the text", i.line)
        f, other = self._module.functions[self._names[name]], self._frames[self._names[name]]
        given = _atoms(lists[-1]) if i.operands[-1] == lists[-1] else []
        results = _atoms(lists[0]) if f.results else []
        given = given if f.params else []
        first = len(self._copies)
        for word, v in zip(given, f.params, strict=True):
            self._copies.append((frame.at[id(i.names[word])], other.at[id(v)], v.size))
        for word, v in zip(results, f.results, strict=True):
            self._copies.append((other.at[id(v)], frame.at[id(i.names[word])], v.size))
        counts = [len(given), len(results)]
        at = self._names[name]
        self._add(i, "call", counts, offset=first, target=at, guard=guard)

    def _operand(self, frame: _Frame, i: Instruction, word: str) -> int:
        """Returns the offset of an operand in the frame."""
        if word.startswith(("!", "-")) and word[1:] in i.names:  # a predicate's opposite
            of = self._operand(frame, i, word[1:])
            opposite = frame.opposite(of)
            self._add(i, "not.pred", [opposite, of])
            return opposite
        if (v := i.names.get(word)) is not None:
            return frame.at[id(v)] if v.space == "reg" else frame.constant(self._addresses[id(v)])
        if word == "_":
            return -1
        if word.startswith("0f") or word.startswith("0d"):
            return frame.constant(int(word[2:], 16))
        try:
            return frame.constant(int(word.rstrip("U"), 0))
        except ValueError:
            raise refuse(f"the operand {word} of `{i.opcode}`", i.line) from None


ATOMICS = {"add", "cas", "exch", "min", "max", "and", "or", "xor", "inc", "dec"}


def _atoms(operand: str) -> list[str]:
    """Returns the words of an operand: those of a vector or list, or of `p|q`."""
    return [w for w in re.split(r"[\s,|]+", operand.strip("{}()")) if w]


def _named(opcode: str) -> str:
    """Returns an opcode without what changes nothing here."""
    words = opcode.split(".")
    if words[0] in ("add", "sub", "mul", "fma", "div", "sqrt", "rcp") and "rn" in words:
        words.remove("rn")
    if words[0] in ("barrier", "bar"):
        words = ["bar", *(w for w in words[1:] if w not in ("cta", "aligned"))]
    return ".".join(w for w in words if w != "uni")


def _how(i: Instruction, words: list[str]) -> tuple[int, int, int, int]:
    """Returns space, order, scope and count of an access or fence, of the words of its opcode."""
    space, order, scope, count = "generic", "weak", "", 1
    for word in words:
        if word == "param":
            space = "generic"  # unless its address is a name
        elif word in SPACES:
            space = word
        elif word in ORDERS:
            order = word
        elif word in SCOPES:
            scope = word
        elif word in _VECTORS:
            count = _VECTORS[word]
        elif not _HINT.fullmatch(word):
            raise refuse(f"`.{word}` of `{i.opcode}`", i.line)
    if i.opcode.startswith(("atom", "red")) and order == "weak":
        order = "relaxed"
    return SPACES.index(space), ORDERS.index(order), SCOPES.index(scope or "gpu"), count
