"""xml_reading: feeds untrusted XML to a handler of SAX events.

XML is hostile input: a streaming parser reads it that refuses DTDs and entities (defusedxml), with
bounds on its bytes and on the bytes between two `>`, before anything is built from it.
"""

from __future__ import annotations

import io
import re
from contextlib import suppress
from typing import Any, NamedTuple
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, InputSource, Locator

from hccc.base.diagnostics import Source, Span, UserError, fail

MAX_BYTES = 8 << 20  # 50 times the largest schedule known; a second to read
MAX_ELEMENT = 1 << 16  # bytes from one `>` to the next
DEEPEST = 1_000  # elements that are open at once
NEAR = 64  # lines that a tag without `>` is looked for in
_NAME = re.compile(r"[^\W\d][\w.:-]*")


def read_xml(source: Source, handler: ContentHandler, language: str, code: str) -> None:
    """Feeds the text to `handler`, linear in it.

    language: the name of this kind of file in messages; code: of the error for other files.

    Raises:
        UserError: E402 not Unicode, E404 too large, E501 not XML; `code`. Also the exceptions of
        `handler`.
    """
    from defusedxml.common import DefusedXmlException  # takes a tenth of a short command's time

    try:
        _parse(_input(source, code), handler)
    except SAXParseException as error:
        raise _not_xml(source, code, error) from None
    except UserError:
        try:  # what is wrong may be that no element ends where its author thinks
            _parse(_input(source, code), ContentHandler())
        except SAXParseException as error:
            raise _not_xml(source, code, error) from None
        raise
    except DefusedXmlException as error:
        raise fail(
            "E501",
            f"{source.name} declares {type(error).__name__.removesuffix('Forbidden')}; "
            f"{language} has no DTD and no entities",
            help="remove the DOCTYPE",
        ) from None


def _input(source: Source, code: str) -> InputSource:
    """Returns the parser's input: bounded, and UTF-8 whatever its declaration says."""
    try:
        data = source.text.encode()
    except UnicodeEncodeError:
        raise fail("E402", f"{source.name} is not Unicode text") from None
    if len(data) > MAX_BYTES:
        raise fail("E404", f"{source.name} is larger than {MAX_BYTES >> 20} MiB")
    if max(map(len, data.split(b">"))) > MAX_ELEMENT:
        raise fail(code, f"{source.name}: {MAX_ELEMENT} bytes without the end of an element")
    found = InputSource()  # without a name: nothing is opened
    found.setEncoding("utf-8")
    found.setByteStream(io.BytesIO(data))
    return found


def _parse(given: InputSource, handler: ContentHandler) -> None:
    """Parses XML that has no DTD."""
    from defusedxml.sax import make_parser

    parser: Any = make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(handler)
    parser.parse(given)


class _OpenElements(ContentHandler):
    """The elements that have begun and not ended: name, line and column from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, int, int]] = []
        self._locator: Locator | None = None

    def setDocumentLocator(self, locator: Locator) -> None:
        self._locator = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        assert self._locator is not None
        if len(self.open) == DEEPEST:
            raise fail("E501", f"`<{name}>` lies within {DEEPEST:,} others that are not closed")
        at = self._locator.getLineNumber() or 1, (self._locator.getColumnNumber() or 0) + 1
        self.open.append((name, *at))

    def endElement(self, name: str) -> None:
        self.open.pop()


def _not_xml(source: Source, code: str, error: SAXParseException) -> UserError:
    """Makes the error for text that ends the parser; that of a tag that is not closed names it."""
    seen = _OpenElements()
    with suppress(SAXParseException):
        _parse(_input(source, code), seen)
    line, column = error.getLineNumber() or 1, (error.getColumnNumber() or 0) + 1
    said, here = error.getMessage(), source.line(line)
    ends = _NAME.match(here, column - 1)
    if said == "mismatched tag" and ends and ends[0] not in [name for name, _, _ in seen.open]:
        span = Span(source, line, column - 2, ends.end() + 1)
        return fail("E501", f"`</{ends[0]}>` ends nothing that has begun", span, help="remove it")
    if said in ("mismatched tag", "no element found") and seen.open:
        name, line, column = seen.open[-1]
        before = f"`</{ends[0]}>` comes" if said == "mismatched tag" and ends else "the file ends"
        span = Span(source, line, column, column + len(name) + 1)
        help = f"write `</{name}>` where it ends; a tag that holds nothing may end with `/>`"
        return fail("E501", f"`<{name}>` is not closed: {before} first", span, help=help)
    if begun := _half_a_tag(source, line, column):
        message = f"`<{begun.name}` is not closed: it has no `>`"
        return fail("E501", message, begun.span, help="end the tag with `>`")
    return fail("E501", f"this is not XML: {said}", Span(source, line, column, column + 1))


class _Tag(NamedTuple):
    name: str
    span: Span


def _half_a_tag(source: Source, line: int, column: int) -> _Tag | None:
    """Finds a tag without `>` that begins at a place, or before it where another `<` stands
    there."""
    if source.line(line)[column - 1 : column] != "<":
        return None
    lines = [(line, source.line(line)[: column - 1])]
    lines += [(n, source.line(n)) for n in range(line - 1, max(0, line - NEAR), -1)]
    for n, text in lines:
        begin = text.rfind("<")
        if ">" in text[begin + 1 :]:
            break
        if begin >= 0:
            line, column = n, begin + 1
            break
    named = _NAME.search(source.line(line), column)
    return _Tag(named[0], Span(source, line, column, named.end() + 1)) if named else None
