"""encode: makes of a text of assembly the table of instructions that `machine.cpp` executes.

A wave has an array of words of 4 bytes: scalar registers first, then 64 words for each vector
register. An operand is the place of its first word there, or a constant. What a register may hold
besides, half of one or its opposite, is said by an instruction's flags.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from hccc.runtime.machines.gcn.parse import GcnInstruction, GcnModule, refuse
from hccc.runtime.machines.kernel import Array

LANES = 64
VECTORS = 136  # where the vector registers begin
SOURCES = 4
NONE, CONSTANT = -1, -2  # no operand, and one of `k`
INSTRUCTION = np.dtype(
    [
        ("handler", "i4"),
        ("line", "i4"),
        ("offset", "i8"),
        ("k", "u8", SOURCES),
        ("d", "i4", 2),  # places of results
        ("s", "i4", SOURCES),  # places of operands
        ("target", "i4"),
        ("first", "i2", 2 + SOURCES),  # registers that results and operands are
        ("counts", "u1", 2 + SOURCES),
        ("width", "u1"),  # bits of an operand, where it may have another sign
        *((name, "u1") for name in ("neg", "abs", "sext", "op_sel", "op_sel_hi", "neg_hi")),
        ("sel", "u1", 3),  # the part of a register that an operand is
        ("to", "u1"),  # the part that the result is
        ("unused", "u1"),  # what becomes of the rest: 0, signs, or what it was
        ("modified", "u1"),  # whether any of those changes operands 0, 1, 2
        ("size", "u1"),  # of an access, bytes of a lane
        ("extend", "u1"),
        ("space", "u1"),
        ("strong", "u1"),
        ("returns", "u1"),
        ("wide", "u1"),  # whether it reaches other devices
        ("reserved", "u1", 3),
    ],
    align=True,
)
CODE = 1 << 40  # the address of the first instruction, 4 bytes each
PRIVATE, SHARED = 0x20000 << 32, 0x10000 << 32  # where flat addresses have those
SPACES = ("flat", "global", "scratch", "buffer", "ds")
EXTENDS = ("", "signed", "low", "high", "signed_low", "signed_high")
PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
DWORD = PARTS.index("DWORD")
_NAMED = {
    **{"flat_scratch": 102, "flat_scratch_lo": 102, "flat_scratch_hi": 103},
    **{"xnack_mask": 104, "vcc": 106, "vcc_lo": 106, "vcc_hi": 107},
    **{"m0": 124, "exec": 126, "exec_lo": 126, "exec_hi": 127, "scc": 128, "src_scc": 128},
}
_APERTURES = {"src_private_base": PRIVATE, "src_shared_base": SHARED}
_PAIRS = {"vcc", "exec", "flat_scratch", "xnack_mask"}
_REGISTER = re.compile(r"([sva])(?:(\d+)|\[(\d+):(\d+)\])")
_NO_RESULT = re.compile(
    r"s_(cmp|bitcmp|branch|cbranch|waitcnt|nop|barrier|sleep|setpc|endpgm|trap|sethalt|setprio|"
    r"set_gpr|setreg|dcache|icache|wakeup|ttrace|sendmsg|code_end)|v_nop|v_cmpx|buffer_(wb|inv)"
)
_TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev|addc|subb|subbrev)_co_u32|v_mad_[ui]64|v_div_scale|v_swap_b32"
)
_MEMORY = re.compile(
    r"(?P<space>flat|global|scratch|buffer|ds)_(?P<kind>load|store|atomic|read2|read|write2|write)"
    r"(?P<st64>st64)?_(?P<what>\w+)"
)
_ACCESS = {
    **{"dword": (4, ""), "dwordx2": (8, ""), "dwordx3": (12, ""), "dwordx4": (16, "")},
    **{"ubyte": (1, ""), "sbyte": (1, "signed"), "byte": (1, ""), "short": (2, "")},
    **{"ushort": (2, ""), "sshort": (2, "signed")},
    **{"ubyte_d16": (1, "low"), "ubyte_d16_hi": (1, "high"), "byte_d16_hi": (1, "high")},
    **{"sbyte_d16": (1, "signed_low"), "sbyte_d16_hi": (1, "signed_high")},
    **{"short_d16": (2, "low"), "short_d16_hi": (2, "high")},
    **{"b8": (1, ""), "u8": (1, ""), "i8": (1, "signed"), "b16": (2, ""), "u16": (2, "")},
    **{"i16": (2, "signed"), "b32": (4, ""), "b64": (8, ""), "b96": (12, ""), "b128": (16, "")},
    **{"u8_d16": (1, "low"), "u8_d16_hi": (1, "high"), "b8_d16_hi": (1, "high")},
    **{"u16_d16": (2, "low"), "u16_d16_hi": (2, "high"), "b16_d16_hi": (2, "high")},
}
_BITS = {"neg_lo": "neg", "neg_hi": "neg_hi", "op_sel": "op_sel", "op_sel_hi": "op_sel_hi"}
_RELOCATION = re.compile(r"([\w.$]+)@rel32@(lo|hi)([+-]\d+)?")
_DISTANCE = re.compile(r"\(([\w.$]+)-([\w.$]+)\)(?:&(\d+)|>>(\d+))")
_FLOAT = re.compile(r"-?\d+\.\d+(e[+-]?\d+)?")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GcnProgram:
    """What the machine executes of a kernel: a table, and the text that each instruction comes
    from. first: the kernel's first instruction; registers: vectors of a wave."""

    module: GcnModule
    code: Array
    memory: Array  # of constant variables
    opcodes: tuple[str, ...]  # as the machine names them; `handler` counts in it
    first: int
    settings: dict[str, int]

    @property
    def registers(self) -> int:
        """The vector registers of a wave, those for accumulation at their end."""
        return self.settings["next_free_vgpr"]


def encode(module: GcnModule, kernel: str) -> GcnProgram:
    """Returns the table of a kernel. Raises UserError E487 for what the machine does not run."""
    if kernel not in module.kernels or kernel not in module.labels:
        raise refuse(f"there is no kernel {kernel}", 1)
    return _GcnEncoder(module, kernel).program()


class _GcnEncoder:
    """Encodes a kernel and all functions of the text, instruction by instruction."""

    def __init__(self, module: GcnModule, kernel: str) -> None:
        self._module, self._kernel = module, kernel
        self._settings = module.kernels[kernel]
        self._opcodes: dict[str, int] = {}
        self._memory = np.zeros(len(module.data) + 512, np.uint8)
        self._base = -(-self._memory.ctypes.data // 256) * 256
        at = self._base - self._memory.ctypes.data
        self._memory[at : at + len(module.data)] = np.frombuffer(bytes(module.data), np.uint8)
        self._after_getpc = 0
        self._named_scopes = module.arch >= "gfx940"  # sc0 and sc1, earlier glc

    def program(self) -> GcnProgram:
        """Encodes all instructions."""
        code = np.zeros(len(self._module.code), INSTRUCTION)
        for at, i in enumerate(self._module.code):
            row = self._one(at, i)
            for name, value in row.items():
                code[name][at] = value
        return GcnProgram(
            module=self._module,
            code=code,
            memory=self._memory,
            opcodes=tuple(self._opcodes),
            first=self._module.labels[self._kernel],
            settings=self._settings,
        )

    def _one(self, at: int, i: GcnInstruction) -> Row:
        """Encodes an instruction: the fields that are not 0."""
        base = re.sub(r"_(e32|e64|sdwa)$", "", i.opcode)
        row: Row = {"line": i.line, "d": [NONE] * 2, "s": [NONE] * SOURCES, "k": [0] * SOURCES}
        row |= {"first": [0] * 6, "counts": [0] * 6, "sel": [DWORD] * 3, "to": DWORD}
        if base == "s_getpc_b64":
            self._after_getpc = at + 1
            row["k"][0] = CODE + 4 * (at + 1)
        if base.startswith(("s_cbranch", "s_branch")):
            row["target"] = self._label(i, i.operands[0])
        elif base == "s_waitcnt":
            row["k"] = _counters(i)
        elif memory := _MEMORY.fullmatch(base):
            base = self._access(row, i, memory)
        elif base.startswith("buffer_"):
            row["strong"] = not self._named_scopes or "sc1" in i.words
            row["wide"] = not self._named_scopes or "sc0" in i.words
        else:
            base = self._arithmetic(row, i, base)
        row["handler"] = self._opcodes.setdefault(base, len(self._opcodes))
        return row

    def _arithmetic(self, row: Row, i: GcnInstruction, base: str) -> str:
        """Encodes results, operands and what changes them; returns the name."""
        n = 0 if _NO_RESULT.match(base) else 2 if _TWO_RESULTS.match(base) else 1
        widths = [int(w) for w in re.findall(r"_(?:pk_)?[biuf](16|32|64)", base)] or [32]
        row["width"] = widths[-1]
        for k, word in enumerate(i.operands[:n]):
            self._result(row, i, k, word)
        for k, word in enumerate(i.operands[n:]):
            self._source(row, i, k, word, base)
        for word in i.words:
            base = _modify(row, i, word, base)
        if base.startswith("v_pk_") or "_mix" in base:
            given = [word.partition(":")[0] for word in i.words]
            row["op_sel_hi"] = row.get("op_sel_hi", 0 if "_mix" in base else 7)
            row["modified"] = 0
            if "_mix" in base and "op_sel_hi" not in given:
                row["op_sel_hi"] = 0
        elif row.get("op_sel"):
            for k in range(3):
                if row["op_sel"] >> k & 1:
                    row["sel"][k] = PARTS.index("WORD_1")
            if row["op_sel"] >> 3 & 1:
                row |= {"to": PARTS.index("WORD_1"), "unused": UNUSED.index("UNUSED_PRESERVE")}
        changed = row.get("neg", 0) | row.get("abs", 0) | row.get("sext", 0)
        changed |= sum((part != DWORD) << k for k, part in enumerate(row["sel"]))
        row["modified"] = 0 if base.startswith("v_pk_") or "_mix" in base else changed
        return base

    def _access(self, row: Row, i: GcnInstruction, found: re.Match[str]) -> str:
        """Encodes an access of memory: operands are the address, data, and a scalar register."""
        space, kind, what = found["space"], found["kind"], found["what"]
        row["space"] = SPACES.index(space)
        words = {name: value for name, _, value in (w.partition(":") for w in i.words)}
        row["offset"] = int(words.pop("offset", "0"), 0)
        strong = "sc1" in words if self._named_scopes else "glc" in words and "slc" not in words
        row["strong"] = strong  # both are there where data are used once
        row["wide"] = not self._named_scopes or "sc0" in words
        row["returns"] = kind == "atomic" and not {"sc0", "glc"}.isdisjoint(words)
        scaled = words.pop("offen", None)
        for word in ("sc0", "sc1", "nt", "glc", "slc"):
            words.pop(word, None)
        two = kind.endswith("2")
        if two:
            step = (64 if found["st64"] else 1) * int(what[1:]) // 8
            row["k"][:2] = [step * int(words.pop(f"offset{k}", "0")) for k in range(2)]
        if words:
            raise refuse(f"`{next(iter(words))}` of `{i.opcode}`", i.line)
        o = list(i.operands)
        data: str | None = None
        if kind in ("load", "read", "read2") or row["returns"]:
            self._result(row, i, 0, o.pop(0))
        if kind in ("store", "write", "write2") and space == "buffer":
            data = o.pop(0)
        address = o.pop(0)
        if kind in ("store", "atomic", "write", "write2") and data is None:
            data = o.pop(0)
        if (
            space == "buffer"
        ):  # the address comes with a descriptor, and an offset in all lanes' bytes
            address = address if scaled is not None else "off"
            o.pop(0)
        if address != "off":
            self._place(row, i, 0, address)
        if data:
            self._place(row, i, 1, data)
        if two and kind == "write2":
            self._place(row, i, 3, o.pop(0))
        if o and o[0] != "off":
            self._source(row, i, 2, o[0], "b32")
        if kind == "atomic":
            row["size"] = 8 if what.endswith("_x2") else 4
            return f"atomic_{what}"
        if what not in _ACCESS:
            raise refuse(f"the instruction `{i.opcode}`", i.line)
        size, extend = _ACCESS[what]
        row["size"], row["extend"] = size, EXTENDS.index(extend)
        kind = {"read": "load", "write": "store"}.get(kind, kind)
        if space != "ds":
            return kind
        row["returns"] = two
        return f"ds_{kind}"

    def _result(self, row: Row, i: GcnInstruction, k: int, word: str) -> None:
        at, first, count = self._register(i, word)
        row["d"][k], row["first"][k], row["counts"][k] = at, first, count

    def _place(self, row: Row, i: GcnInstruction, k: int, word: str) -> None:
        at, first, count = self._register(i, word)
        row["s"][k], row["first"][2 + k], row["counts"][2 + k] = at, first, count

    def _source(self, row: Row, i: GcnInstruction, k: int, word: str, base: str) -> None:
        """Encodes an operand: a register, perhaps another sign of it, or a constant."""
        if word.startswith("-") and not re.match(r"-[\d.]", word):
            row["neg"], word = row.get("neg", 0) | 1 << k, word[1:]
        if word.startswith("|"):
            row["abs"], word = row.get("abs", 0) | 1 << k, word.strip("|")
        if word.startswith("sext("):
            row["sext"], word = row.get("sext", 0) | 1 << k, word[5:-1]
        if _REGISTER.fullmatch(word) or word in _NAMED:
            self._place(row, i, k, word)
        else:
            row["s"][k], row["k"][k] = CONSTANT, self._constant(i, k, word, base)

    def _register(self, i: GcnInstruction, word: str) -> tuple[int, int, int]:
        """Returns where a register begins, its number, and how many there are."""
        if word in _NAMED:
            return _NAMED[word], _NAMED[word], 2 if word in _PAIRS else 1
        if not (found := _REGISTER.fullmatch(word)):
            raise refuse(f"the operand {word} of `{i.opcode}`", i.line)
        first = int(found[2] or found[3])
        count = int(found[4]) - first + 1 if found[4] else 1
        if found[1] == "s":
            return first, first, count
        first += self._settings["accum_offset"] if found[1] == "a" else 0
        return VECTORS + LANES * first, 128 + first, count

    def _constant(self, i: GcnInstruction, k: int, word: str, base: str) -> int:
        """Returns a constant's 64 bits, the lower ones first."""
        if word in _APERTURES:
            return _APERTURES[word]
        if found := _RELOCATION.fullmatch(word):
            more = int(found[3] or 0) - (4 if found[2] == "lo" else 12)
            distance = self._address(i, found[1]) + more - (CODE + 4 * self._after_getpc)
            return distance & 0xFFFFFFFF if found[2] == "lo" else distance >> 32 & 0xFFFFFFFF
        if found := _DISTANCE.fullmatch(word):
            distance = self._address(i, found[1]) - self._address(i, found[2])
            return distance & int(found[3]) if found[3] else distance >> int(found[4]) & 0xFFFFFFFF
        try:
            if _FLOAT.fullmatch(word):
                return _bits(float(word), 64 if base.startswith("v_mad_u64") else _width(base))
            value = int(word, 0)
        except ValueError:
            raise refuse(f"the operand {word} of `{i.opcode}`", i.line) from None
        if base.endswith("f64") and word.startswith("0x"):
            return value << 32
        if base.startswith("v_pk_") and base.endswith("f32"):
            return (value & 0xFFFFFFFF) * 0x100000001
        return value & (1 << 64) - 1

    def _address(self, i: GcnInstruction, name: str) -> int:
        if name in self._module.objects:
            return self._base + self._module.objects[name]
        return CODE + 4 * self._label(i, name)

    def _label(self, i: GcnInstruction, name: str) -> int:
        if name not in self._module.labels:
            raise refuse(f"`{i.opcode}` to {name}", i.line)
        return self._module.labels[name]


def _width(base: str) -> int:
    """Returns the bits of a constant operand of an instruction."""
    found = re.findall(r"_[biuf](16|32|64)", base)
    return int(found[-1]) if found else 32


def _bits(value: float, width: int) -> int:
    kind = {16: "e", 32: "f", 64: "d"}[width]
    return int.from_bytes(struct.pack(f"<{kind}", value), "little")


def _counters(i: GcnInstruction) -> list[int]:
    """Returns the most loads and stores, and the most of the others, that remain after a wait."""
    most = {"vmcnt": 64, "lgkmcnt": 64, "expcnt": 8}
    for word in i.words:
        if not (found := re.fullmatch(r"(\w+)\((\d+)\)", word)):
            if word != "0":
                raise refuse(f"`{word}` of `{i.opcode}`", i.line)
            return [0, 0, 0, 0]
        most[found[1]] = int(found[2])
    return [most["vmcnt"], most["lgkmcnt"], 0, 0]


def _modify(row: Row, i: GcnInstruction, word: str, base: str) -> str:
    """Encodes a word after the operands; returns the instruction's name."""
    name, _, value = word.partition(":")
    if name in _BITS:
        bits = sum(int(bit) << k for k, bit in enumerate(value.strip("[]").split(",")))
        row[_BITS[name]] = bits
    elif name == "dst_sel":
        row["to"] = PARTS.index(value)
    elif name == "dst_unused":
        row["unused"] = UNUSED.index(value)
    elif name in ("src0_sel", "src1_sel"):
        row["sel"][int(name[3])] = PARTS.index(value)
    elif name == "clamp":
        return f"{base}_clamp"
    elif name == "offset" and base.startswith("s_load"):
        row["offset"] = int(value, 0)
    else:
        raise refuse(f"`{word}` of `{i.opcode}`", i.line)
    return base
