"""own_reductions: reductions of one's own as C, written from their expressions, not their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hccc.base.reductions.expression import Expression
from hccc.base.reductions.parse import own


def constants(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the macro that defines reductions (`types.h`), if there are any."""
    defined = []
    for text in texts:
        made = own(text)
        defined.append(f'HCCC_OWN({made.name}, "{made.kinds}", {_term(made.expression)})')
    if defined:
        yield "HCCC_REDUCTIONS", " ".join(defined)


def _term(e: Expression) -> str:
    """Writes an expression as calls of `hccc_terms`."""
    if e.operation in ("a", "b"):
        return e.operation
    if e.operation == "number":
        return f"t::number({_number(e.number)})"
    return f"t::{e.operation}({', '.join(map(_term, e.parts))})"


def _number(text: str) -> str:
    """Writes a number: an integer as one of 64 bits, another with all its digits."""
    return f"{int(text)}LL" if text.isdigit() else repr(float(text))
