"""choices: the pictures that there are, and the options of a drawing. Nothing here draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hccc.base.diagnostics import fail
from hccc.base.files.writing import check_place
from hccc.driver.options import check_integer
from hccc.ir.names import file_read

WHATS = ("topology", "dag", "pipeline", "timeline")
SUFFIXES = (".svg", ".png", ".html")


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The options of a drawing.

    `what`: one of WHATS, None for the one that suits the file; `size`: bytes of the timeline.
    Files: `output` a picture or the page with all of them, `trace` for Perfetto.

    Raises:
        UserError: E410 for an unknown picture.
    """

    output: Path | None = None
    what: str | None = None
    size: int = 64 << 20
    trace: Path | None = None

    def __post_init__(self) -> None:
        check_what(self.what)
        check_integer("size", self.size, 0, None)

    def check(self, *inputs: Path | None) -> None:
        """Raises E431, E433 for files that cannot be written or have no picture's name, before any
        work.

        inputs: files that are read, and must not be overwritten.
        """
        if self.output is None and self.trace is None:
            raise fail("E415", "say where to: -o FILE, or --trace FILE", help="`-o out.html`")
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            help = "a picture is .svg or .png, the page with all of them .html"
            raise fail("E433", f"-o {self.output}: neither .svg, .png nor .html", help=help)
        for path in (self.output, self.trace):
            if path is not None and str(path) == "-":
                raise fail("E415", "a picture or a trace cannot go to stdout", help="give a file")
            if path is not None:
                check_place(path, *(file_read(x) for x in inputs if x))
        if self.output and self.trace and self.output.resolve() == self.trace.resolve():
            raise fail("E415", f"-o and --trace are both {self.output}", help="give two names")


def check_what(what: str | None) -> None:
    """Raises UserError E410 for an unknown picture."""
    if what is not None and what not in WHATS:
        raise fail("E410", f"picture {what!r} is not one of {', '.join(WHATS)}")
