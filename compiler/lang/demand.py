"""demand: the file of a demand (`ir/demand`): its text, with the place of what is wrong."""

from __future__ import annotations

from pathlib import Path

from hccc.base.diagnostics import Source, Span, fail
from hccc.base.files.reading import read_text
from hccc.ir.demand import Demand, DemandFault
from hccc.ir.demand import parse as parse_text

MAX_BYTES = 8 << 20


def load(path: Path, n_ranks: int) -> Demand:
    """Reads the demand in a file, among so many ranks. Raises `UserError`."""
    return parse(Source(str(path), read_text(path, MAX_BYTES)), n_ranks)


def parse(source: Source, n_ranks: int) -> Demand:
    """Reads the demand in a text. Raises UserError E017."""
    text = source.text.removeprefix("\ufeff")
    try:
        return parse_text(text, n_ranks)
    except DemandFault as fault:
        before = text[: fault.begin]
        line, column = before.count("\n") + 1, fault.begin - before.rfind("\n")
        end = column + max(1, fault.end - fault.begin)
        span = Span(source, line, column, end)
        raise fail("E017", fault.message, span, help=fault.help) from None
