"""load: MSCCL XML to a checked table of steps (both dialects, msccl-formats §1).

XML is hostile input: depth, elements and every number are bounded before anything is built from
them (`xml_reading`). `msccl_plan` turns the table into a Plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from hccc.base.diagnostics import Source, Span, UserError, fail
from hccc.base.files.reading import read_text
from hccc.lang.xml_reading import MAX_BYTES as MAX_BYTES
from hccc.lang.xml_reading import read_xml

MAX_RANKS = 1024  # children of an element in the runtimes' tables
MAX_BLOCK_STEPS = 1024  # likewise
MAX_STEPS = 1 << 19  # over all ranks, `cnt` counted
MAX_CHUNKS = 1 << 15  # offsets are 16 bit in the runtimes
MAX_COUNT = 71  # MSCCL_MAX_COUNT - 1
MAX_CHANNELS = 128  # RCCL's; the others allow 32
MAX_BLOCKS = 1024  # the executor's; the others allow fewer
STEP_TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
BUFFERS = ("i", "o", "s")
PROTOCOLS = ("Simple", "LL", "LL128")


class Step(NamedTuple):
    """One `<step>`: its kind, buffers and number of chunks, and the step of another block that it
    waits for."""

    kind: str
    src: tuple[str, int]
    dst: tuple[str, int]
    chunks: int
    depends: tuple[int, int] | None  # (thread block, step)
    signals: bool
    line: int


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """One `<tb>`: its peers (None without one), its channel and its steps in file order."""

    id: int
    send: int | None
    recv: int | None
    channel: int
    steps: tuple[Step, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One `<gpu>`: chunks of its three buffers, and its thread blocks by id."""

    id: int
    chunks: dict[str, int]
    blocks: tuple[ThreadBlock, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Algo:
    """One `<algo>`. in_place, out_of_place: the calls that its attributes allow."""

    source: Source
    name: str
    collective: str
    protocol: str
    chunks_per_loop: int
    channels: int
    in_place: bool
    out_of_place: bool
    gpus: tuple[Gpu, ...]

    def span(self, line: int) -> Span:
        """Returns the span of line `line` of the file, for messages."""
        text = self.source.line(line)
        first = len(text) - len(text.lstrip()) + 1
        return Span(self.source, line, first, max(first + 1, len(text.rstrip()) + 1))


def load(path: str | Path) -> Algo:
    """Loads the algorithm in a file. Raises as `parse`, and UserError E401, E402, E404."""
    return parse(Source(str(path), read_text(Path(path), MAX_BYTES)))


def parse(source: Source) -> Algo:
    """Parses the algorithm in a text, linear in it.

    Raises:
        UserError: E402 not Unicode, E404 too large, E50x not the XML of an algorithm.
    """
    handler = _Handler(source)
    read_xml(source, handler, "MSCCL XML", "E502")
    return handler.algo()


@dataclass(slots=True)
class _OpenElement:
    """The element being read."""

    attributes: dict[str, Any]
    line: int
    children: list[Any] = field(default_factory=list)


class _Handler(ContentHandler):
    """Builds the tables while the parser reads; raises at the first error."""

    PARENT: ClassVar = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb", "copy": "gpu"}

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._stack: list[tuple[str, _OpenElement]] = []
        self._locator: Locator | None = None
        self._algo: Algo | None = None
        self._steps = 0
        self._read: dict[tuple[str, str, int, int], int] = {}  # numbers already checked

    def setDocumentLocator(self, locator: Locator) -> None:
        self._locator = locator

    def algo(self) -> Algo:
        if self._algo is None:
            raise fail("E502", f"{self._source.name} holds no <algo>")
        return self._algo

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        inside = self._stack[-1][0] if self._stack else None
        if name not in self.PARENT or self.PARENT[name] != inside:
            where = f"inside <{inside}>" if inside else "as the outermost element"
            raise self._wrong(f"<{name[:40]}> has no place {where}")
        if name == "algo" and self._algo is not None:
            raise self._wrong("a second <algo>")
        read = {"algo": self._algo_of, "gpu": self._gpu_of, "tb": self._tb_of}.get(name)
        attributes = read(attrs) if read else {}
        if name == "step":
            self._stack[-1][1].children.append(self._step_of(attrs))
        self._stack.append((name, _OpenElement(attributes, self._line())))

    def endElement(self, name: str) -> None:
        _, done = self._stack.pop()
        if name == "tb":
            self._close_tb(done)
        elif name == "gpu":
            self._close_gpu(done)
        elif name == "algo":
            self._close_algo(done)

    def characters(self, content: str) -> None:
        if content.strip():
            raise self._wrong("text between the elements")

    def _line(self) -> int:
        return (self._locator.getLineNumber() if self._locator else 1) or 1

    def _wrong(self, message: str, help: str | None = None) -> UserError:
        line = self._line()
        text = self._source.line(line)
        first = len(text) - len(text.lstrip()) + 1
        return fail("E502", message, Span(self._source, line, first, len(text) + 1), help=help)

    def _number(
        self, attrs: AttributesImpl, key: str, lo: int, hi: int, default: int | None = None
    ) -> int:
        text = attrs.get(key)
        if text is None:
            if default is None:
                help = f'write {key}="{lo}"; it is {lo} to {hi}'
                raise self._wrong(f"the attribute {key} is missing", help)
            return default
        known = self._read.get((key, text, lo, hi))
        if known is not None:
            return known
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 18:
            raise self._wrong(f"{key}={text[:40]!r} is not a whole number")
        if not lo <= int(text) <= hi:
            raise self._wrong(f"{key}={int(text)} is outside {lo}..{hi}")
        return self._read.setdefault((key, text, lo, hi), int(text))

    def _choice(self, attrs: AttributesImpl, key: str, choices: tuple[str, ...]) -> str:
        value = attrs.get(key)
        if value not in choices:
            raise self._wrong(f"{key}={str(value)[:40]!r} is not one of {', '.join(choices)}")
        return str(value)

    def _algo_of(self, attrs: AttributesImpl) -> dict[str, Any]:
        in_place = bool(self._number(attrs, "inplace", 0, 1))
        out_of_place = bool(self._number(attrs, "outofplace", 0, 1, int(not in_place)))
        if not in_place and not out_of_place:
            raise self._wrong("inplace=0 and outofplace=0: no call would use this")
        return {
            "name": str(attrs.get("name", "msccl"))[:63],
            "collective": str(attrs.get("coll", ""))[:40],
            "protocol": self._choice(attrs, "proto", PROTOCOLS),
            "chunks_per_loop": self._number(attrs, "nchunksperloop", 1, MAX_CHUNKS),
            "channels": self._number(attrs, "nchannels", 1, MAX_CHANNELS),
            "in_place": in_place,
            "out_of_place": out_of_place,
            "ranks": self._number(attrs, "ngpus", 1, MAX_RANKS),
        }

    def _gpu_of(self, attrs: AttributesImpl) -> dict[str, Any]:
        return {
            "id": self._number(attrs, "id", 0, MAX_RANKS - 1),
            **{b: self._number(attrs, f"{b}_chunks", 0, MAX_CHUNKS) for b in BUFFERS},
        }

    def _tb_of(self, attrs: AttributesImpl) -> dict[str, Any]:
        return {
            "id": self._number(attrs, "id", 0, MAX_BLOCKS - 1),
            "send": self._number(attrs, "send", -1, MAX_RANKS - 1),
            "recv": self._number(attrs, "recv", -1, MAX_RANKS - 1),
            "channel": self._number(attrs, "chan", 0, MAX_CHANNELS - 1),
        }

    def _step_of(self, attrs: AttributesImpl) -> Step:
        kind = self._choice(attrs, "type", STEP_TYPES)
        position = len(self._stack[-1][1].children)
        if position == MAX_BLOCK_STEPS:
            raise self._wrong(f"more than {MAX_BLOCK_STEPS} steps in a thread block")
        if self._number(attrs, "s", 0, MAX_BLOCK_STEPS) != position:
            raise self._wrong(f"step s={attrs.get('s')} is the {position}th of its thread block")
        count = self._number(attrs, "cnt", 0 if kind == "nop" else 1, MAX_COUNT)
        self._steps += max(count, 1)
        if self._steps > MAX_STEPS:
            raise self._wrong(f"more than {MAX_STEPS} steps in all")
        block = self._number(attrs, "depid", -1, MAX_BLOCKS - 1)
        step = self._number(attrs, "deps", -1, MAX_BLOCK_STEPS)
        return Step(
            kind,
            self._place(attrs, "src"),
            self._place(attrs, "dst"),
            count,
            None if block < 0 else (block, step),
            bool(self._number(attrs, "hasdep", 0, 1)),
            self._line(),
        )

    def _place(self, attrs: AttributesImpl, end: str) -> tuple[str, int]:
        buffer = self._choice(attrs, f"{end}buf", BUFFERS)
        return buffer, self._number(attrs, f"{end}off", -1, MAX_CHUNKS - 1)

    def _close_tb(self, done: _OpenElement) -> None:
        a = done.attributes
        send, recv = (a[k] if a[k] >= 0 else None for k in ("send", "recv"))
        steps = tuple(done.children)
        block = ThreadBlock(a["id"], send, recv, a["channel"], steps, done.line)
        self._stack[-1][1].children.append(block)

    def _close_gpu(self, done: _OpenElement) -> None:
        blocks: list[ThreadBlock] = done.children
        if sorted(b.id for b in blocks) != list(range(len(blocks))):
            raise self._wrong(
                f"the thread blocks of gpu {done.attributes['id']} are not 0, 1, 2, …"
            )
        chunks = {b: done.attributes[b] for b in BUFFERS}
        ordered = tuple(sorted(blocks, key=lambda b: b.id))
        self._stack[-1][1].children.append(Gpu(done.attributes["id"], chunks, ordered, done.line))

    def _close_algo(self, done: _OpenElement) -> None:
        gpus: list[Gpu] = done.children
        ranks = done.attributes.pop("ranks")
        if sorted(g.id for g in gpus) != list(range(ranks)):
            raise self._wrong(f"ngpus={ranks}, but the <gpu> ids are not 0..{ranks - 1}, each once")
        ordered = tuple(sorted(gpus, key=lambda g: g.id))
        self._algo = Algo(self._source, gpus=ordered, **done.attributes)
