"""parse: reads assembly as clang prints it for AMD: instructions with lines, labels, constant data.

    k:                                      ; @k
      .loc 1 60 0
      s_load_dwordx4 s[0:3], s[4:5], 0x10
      v_add_f32_e64 v0, |v1|, s2
      global_store_dword v[2:3], v0, off offset:16 sc0 sc1
    .LBB0_2:

Labels hold in the whole text. Of debug information only what is inlined where is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from hccc.base.diagnostics import UserError
from hccc.runtime.machines.gcn.inlined import calls_of
from hccc.runtime.machines.kernel import Place
from hccc.runtime.machines.kernel import refuse as machine_refuse

_OPERAND = re.compile(r"(?:\[[^\]]*\]|\([^)]*\)|[^,\[(])+")
_FILE = re.compile(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_TARGET = re.compile(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)')
_SIZES = {".byte": 1, ".short": 2, ".long": 4, ".quad": 8}
_LEFT_OUT = (".debug", ".note", ".AMDGPU", ".comment")
# Settings of a kernel that the machine asks for, without `.amdhsa_`.
_SETTING = re.compile(r"\.amdhsa_(\w+)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class GcnInstruction:
    """An instruction. line: of the text, from 1; source: its place, then those that it is inlined
    at; words: what follows the operands, such as `sc1` and `offset:16`."""

    line: int
    source: tuple[Place, ...]
    opcode: str
    operands: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(slots=True)
class GcnModule:
    """A text. arch: gfx942 for example; labels: the instruction that each stands before; data:
    that of all variables, objects: where each begins in it; kernels: the settings of each."""

    arch: str = ""
    files: dict[int, str] = field(default_factory=dict)
    code: list[GcnInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    objects: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, dict[str, int]] = field(default_factory=dict)


def refuse(what: str, line: int) -> UserError:
    """Makes the error for text that the machine does not run."""
    return machine_refuse("assembly", what, line)


def parse(text: str) -> GcnModule:
    """Reads a module. Raises UserError E487 for what it does not know."""
    return _AssemblyParser(text).module


class _AssemblyParser:
    """Reads a module, line by line."""

    def __init__(self, text: str) -> None:
        self.module = GcnModule()
        self._source: tuple[Place, ...] = ()
        self._section = ".text"
        self._settings: dict[str, int] = {}
        lines = text.splitlines()
        for number, raw in enumerate(lines, 1):
            if line := raw.partition(";")[0].strip():
                self._read(number, line)
        m = self.module
        calls = calls_of(lines, m.labels, len(m.code))
        m.code = [replace(i, source=(*i.source, *c)) for i, c in zip(m.code, calls, strict=True)]

    def _read(self, number: int, line: str) -> None:
        m = self.module
        if line.startswith((".section", ".text", ".data", ".bss")):
            name = line.split()[1].partition(",")[0] if line.startswith(".section") else line
            self._section = name.strip('"')
        elif self._section.startswith(_LEFT_OUT):
            return
        elif line.endswith(":"):
            into, at = (m.labels, len(m.code)) if self._section == ".text" else (m.objects, None)
            into[line[:-1]] = len(m.data) if at is None else at
        elif line.startswith("."):
            self._directive(number, line)
        elif self._section == ".text":
            m.code.append(self._instruction(number, line))

    def _directive(self, number: int, line: str) -> None:
        m = self.module
        word, _, rest = line.replace("\t", " ").partition(" ")
        if loc := _LOC.match(line):
            self._source = ((int(loc[1]), int(loc[2]), int(loc[3])),)
        elif file := _FILE.match(line):
            m.files[int(file[1])] = file[2]
        elif target := _TARGET.match(line):
            m.arch = target[1]
        elif word == ".amdhsa_kernel":
            self._settings = m.kernels[rest.strip()] = {}
        elif setting := _SETTING.match(line):
            self._settings[setting[1]] = int(setting[2])
        elif self._section != ".text":
            self._data(number, word, rest)

    def _data(self, number: int, word: str, rest: str) -> None:
        data = self.module.data
        first = rest.split(",")[0].strip()
        if word in (".p2align", ".p2alignl"):
            data.extend(bytes(-len(data) % (1 << int(first))))
        elif word in (".zero", ".skip"):
            data.extend(bytes(int(first)))
        elif word in _SIZES:
            for value in rest.split(","):
                try:
                    whole = int(value, 0)
                except ValueError:
                    raise refuse(f"the value {value.strip()} of a variable", number) from None
                size = _SIZES[word]
                data.extend((whole & (1 << 8 * size) - 1).to_bytes(size, "little"))
        elif word in (".ascii", ".asciz"):
            raise refuse(f"the variable's value `{word}`", number)

    def _instruction(self, number: int, line: str) -> GcnInstruction:
        opcode, _, rest = line.replace("\t", " ").partition(" ")
        found = [operand.split() for operand in _OPERAND.findall(rest)]
        if opcode.startswith(("s_waitcnt", "buffer_wb", "buffer_inv")):
            return GcnInstruction(number, self._source, opcode, (), tuple(rest.split()))
        words = tuple(found[-1][1:]) if found else ()
        operands = tuple(operand[0] for operand in found)
        return GcnInstruction(number, self._source, opcode, operands, words)
