"""elements: the XML of a machine as a tree, with bounds on depth, elements and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from hccc.base.diagnostics import Source, UserError, fail
from hccc.lang.xml_reading import read_xml

MAX_ELEMENTS = 1 << 16
MAX_DEPTH = 32
MAX_ATTRIBUTES = 64
MAX_DIGITS = 12
LANGUAGE = "a topology of NCCL or RCCL"


@dataclass(slots=True)
class Element:
    """One element of a topology."""

    source: Source
    name: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def get(self, key: str) -> str:
        """Returns an attribute, empty if it is missing."""
        return self.attributes.get(key, "").strip()

    def number(self, key: str, default: int) -> int:
        """Returns a whole number that is not negative. Raises UserError E541 for anything else."""
        text = self.get(key)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or len(text) > MAX_DIGITS:
            raise self.wrong(f"{key}={text[:40]!r} is not a whole number")
        return int(text)

    def of(self, *names: str) -> list[Element]:
        """Returns the children with these names."""
        return [child for child in self.children if child.name in names]

    def walk(self) -> Iterator[Element]:
        """Yields the element and all elements below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def wrong(self, message: str, help: str = "") -> UserError:
        """Makes the error E541 about this element."""
        where = f"{self.source.name}, line {self.line}, <{self.name[:40]}>"
        return fail("E541", f"{where}: {message}", help=help)


class _Tree(ContentHandler):
    """Builds the tree; raises at the first bound that is exceeded."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._stack: list[Element] = []
        self._locator: Locator | None = None
        self._count = 0
        self.root: Element | None = None

    def setDocumentLocator(self, locator: Locator) -> None:
        self._locator = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        line = (self._locator.getLineNumber() if self._locator else 1) or 1
        element = Element(self._source, name, dict(attrs.items()), line)
        self._count += 1
        for count, limit, noun in (
            (self._count, MAX_ELEMENTS, "elements"),
            (len(self._stack), MAX_DEPTH, "elements inside each other"),
            (len(element.attributes), MAX_ATTRIBUTES, "attributes of an element"),
        ):
            if count > limit:
                raise element.wrong(f"there are more than {limit:,} {noun}")
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self.root = element
        self._stack.append(element)

    def endElement(self, name: str) -> None:
        self._stack.pop()


def parse(source: Source) -> Element:
    """Reads the outermost element. Raises UserError E402, E404, E501, E540, E541."""
    tree = _Tree(source)
    read_xml(source, tree, LANGUAGE, "E540")
    assert tree.root is not None  # XML without an element is E501
    return tree.root
