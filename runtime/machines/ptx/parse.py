"""parse: reads PTX as nvcc prints it: variables, functions, and their instructions with lines.

    .func (.param .b32 func_retval0) f(.param .b32 f_param_0)
    { .reg .b32 %r<3>;
      .loc 1 60 0
      ld.param.u32 %r1, [f_param_0];
      @%p1 bra $L__BB0_2;

Names of registers and of calls' parameters hold in their braces only; they are found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hccc.base.diagnostics import UserError
from hccc.runtime.machines.kernel import Place
from hccc.runtime.machines.kernel import refuse as machine_refuse

SIZES = {"pred": 1, **{f"{kind}{8 * n}": n for kind in "busf" for n in (1, 2, 4, 8, 16)}}
_LABEL = re.compile(r"([\w$]+):(?!:)")
_VARIABLE = re.compile(
    r"\.(?P<space>reg|param|local|shared|global|const)\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"(?:\.(?P<vector>v[24])\s+)?\.(?P<type>\w+)\s+(?P<name>[%\w$]+)"
    r"(?:<(?P<many>\d+)>)?(?:\[(?P<length>\d*)\])?"
)
_HEADER = re.compile(
    r"(?:\.(?:visible|weak|extern)\s+)*\.(?P<kind>entry|func)\s*"
    r"(?:\((?P<results>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*(?:\((?P<params>[^)]*)\))?"
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A register, a parameter, or memory. size: bytes; of registers 8, whatever their type."""

    space: str
    name: str
    size: int
    align: int
    initial: bytes = b""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction. line: of the text, from 1; source: its place, then those that it is inlined
    at; names: the variables in scope that its operands name."""

    line: int
    source: tuple[Place, ...]
    guard: str
    opcode: str
    operands: tuple[str, ...]
    names: dict[str, Variable]


@dataclass(slots=True)
class Function:
    """A function or kernel. variables: registers, parameters and own memory; labels: the
    instruction that each stands before."""

    name: str
    entry: bool
    results: list[Variable] = field(default_factory=list)
    params: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """A text. files: names of the sources by their numbers; variables: global, constant and shared
    memory, that of functions too."""

    target: str = ""
    files: dict[int, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


def refuse(what: str, line: int) -> UserError:
    """Makes the error for text that the machine does not run."""
    return machine_refuse("PTX", what, line)


def parse(text: str) -> Module:
    """Reads a module. Raises UserError E487 for what it does not know."""
    return _Parser(text).module


@dataclass(frozen=True, slots=True)
class _Statement:
    line: int
    text: str  # `{`, `}`, a label with its colon, a directive or an instruction


def _statements(text: str) -> Iterator[_Statement]:
    """Yields the statements in order; debug sections are left out."""
    plain = re.sub(r"//[^\n]*", "", text)
    at, line, n = 0, 1, len(plain)
    while at < n:
        char = plain[at]
        if char.isspace():
            line += char == "\n"
            at += 1
            continue
        if plain.startswith(".section", at):
            at = n  # of debug information, which ends the text
            continue
        if char in "{}":
            end = at + 1
        elif label := _LABEL.match(plain, at):
            end = label.end()
        elif re.compile(r"\.(loc|file|version|target|address_size)\b").match(plain, at):
            end = _end(plain, "\n", at)
        elif re.compile(r"(\.(visible|weak|extern)\s+)*\.(entry|func)\b").match(plain, at):
            end = min(_end(plain, "{", at), _end(plain, ";", at))
        else:
            end = _end(plain, ";", at) + 1
        yield _Statement(line, plain[at:end].strip())
        line += plain.count("\n", at, end)
        at = end + (plain[end : end + 1] == ";")


def _end(text: str, mark: str, at: int) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found


class _Parser:
    """Reads a module, statement by statement."""

    def __init__(self, text: str) -> None:
        self.module = Module()
        self._function: Function | None = None
        self._outer: dict[str, Variable] = {}
        self._scopes: list[dict[str, Variable]] = []
        self._source: tuple[Place, ...] = ()
        self._inlined: dict[Place, tuple[Place, ...]] = {}  # a place, and where it was last inlined
        for statement in _statements(text):
            self._read(statement)

    def _read(self, s: _Statement) -> None:
        if s.text == "{":
            self._scopes.append({})
        elif s.text == "}":
            self._scopes.pop()
            if len(self._scopes) == 1 and self._function:  # that of its parameters
                self._scopes.pop()
                self._function = None
        elif header := _HEADER.match(s.text):
            self._begin(header)
        elif s.text.startswith("."):
            self._directive(s)
        elif (function := self._function) is None:
            raise refuse(f"`{s.text[:40]}` outside a function", s.line)
        elif s.text.endswith(":"):
            function.labels[s.text[:-1]] = len(function.code)
        else:
            function.code.append(self._instruction(s))

    def _begin(self, header: re.Match[str]) -> None:
        """Begins a function; what only declares one is followed by no braces."""
        made = Function(header["name"], header["kind"] == "entry")
        self._function, names = made, dict[str, Variable]()
        for text, into in ((header["results"], made.results), (header["params"], made.params)):
            for found in _VARIABLE.finditer(text or ""):
                into.extend(self._declare(found, names))
        self._scopes = [names]
        self.module.functions = [f for f in self.module.functions if f.name != made.name]
        self.module.functions.append(made)

    def _declare(
        self, found: re.Match[str], names: dict[str, Variable], text: str = ""
    ) -> list[Variable]:
        """Adds the variables of a declaration to the function or module, and returns them."""
        space, word = found["space"], SIZES.get(found["type"], 8)
        size = word * int((found["vector"] or "v1")[1:]) * int(found["length"] or 1)
        size, align = (8, 8) if space == "reg" else (size, int(found["align"] or word))
        initial = bytes(map(int, re.findall(r"\d+", text.partition("=")[2])))
        many = range(int(found["many"])) if found["many"] else [""]
        made = [Variable(space, f"{found['name']}{i}", size, align, initial) for i in many]
        names.update({variable.name: variable for variable in made})
        own = self._function and space in ("reg", "param", "local")
        (self._function if own and self._function else self.module).variables.extend(made)
        return made

    def _directive(self, s: _Statement) -> None:
        if loc := _LOC.match(s.text):
            here = int(loc[1]), int(loc[2]), int(loc[3])
            at = (int(loc[4]), int(loc[5]), int(loc[6])) if loc[4] else None
            self._source = (here, *(self._inlined.get(at, (at,)) if at else ()))
            self._inlined[here] = self._source
        elif file := _FILE.match(s.text):
            self.module.files[int(file[1])] = file[2]
        elif s.text.startswith(".target"):
            self.module.target = s.text.split()[1].rstrip(",")
        elif declared := _VARIABLE.search(s.text):
            if "generic(" in s.text or (declared["type"] not in ("b8", "u8") and "=" in s.text):
                raise refuse(f"initial values of {declared['name']}", s.line)
            self._declare(declared, self._scopes[-1] if self._scopes else self._outer, s.text)

    def _instruction(self, s: _Statement) -> Instruction:
        text = s.text.rstrip(";")
        guard = re.match(r"@(!?%\w+)\s+", text)
        text = text[guard.end() :] if guard else text
        opcode, _, rest = text.replace("\t", " ").replace("\n", " ").partition(" ")
        operands = tuple(found.group() for found in _OPERAND.finditer(rest))
        words = re.findall(r"[%\w$]+", f"{guard[1] if guard else ''} {rest}")
        names = {word: where for word in words if (where := self._find(word)) is not None}
        guarded = guard[1] if guard else ""
        return Instruction(s.line, self._source, guarded, opcode, operands, names)

    def _find(self, name: str) -> Variable | None:
        scopes = (*reversed(self._scopes), self._outer)
        return next((scope[name] for scope in scopes if name in scope), None)
