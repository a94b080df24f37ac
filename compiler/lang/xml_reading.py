"""xml_reading: feeds untrusted XML to a handler of SAX events.

XML is hostile input: a streaming parser reads it that refuses DTDs and entities (defusedxml), with
bounds on its bytes and on the bytes between two `>`, before anything is built from it.
"""

from __future__ import annotations

import io
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import InputSource

from hccc.base.diagnostics import Source, Span, UserError, fail

MAX_BYTES = 8 << 20  # 50 times the largest schedule known; a second to read
MAX_ELEMENT = 1 << 16  # bytes from one `>` to the next


def read_xml(source: Source, handler: ContentHandler, language: str, code: str) -> None:
    """Feeds the text to `handler`, linear in it.

    language: the name of this kind of file in messages; code: of the error for other files.

    Raises:
        UserError: E402 not Unicode, E404 too large, E501 not XML; `code`. Also the exceptions of
        `handler`.
    """
    from defusedxml.common import DefusedXmlException  # takes a tenth of a short command's time
    from defusedxml.sax import make_parser

    parser: Any = make_parser()
    parser.forbid_dtd = True
    parser.setContentHandler(handler)
    try:
        parser.parse(_input(source, code))
    except SAXParseException as error:
        raise _not_xml(source, error) from None
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


def _not_xml(source: Source, error: SAXParseException) -> UserError:
    line, column = error.getLineNumber() or 1, (error.getColumnNumber() or 0) + 1
    return fail(
        "E501", f"this is not XML: {error.getMessage()}", Span(source, line, column, column + 1)
    )
