"""shown: how results look where Python shows a value: notebooks, prompts, data frames."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from hccc.base.diagnostics import fail

LONGEST_REPR = 200  # characters


def brief(value: object, says: str) -> str:
    """Returns a `repr` of one line: `<Plan ring: Allreduce over 8 ranks>`."""
    text = " ".join(says.split())
    cut = text if len(text) <= LONGEST_REPR else text[: LONGEST_REPR - 1] + "…"
    return f"<{type(value).__name__} {cut}>"


def preformatted(text: str) -> str:
    """Returns a text as HTML, its columns kept."""
    return f'<pre style="line-height: 1.2">{html.escape(text)}</pre>'


def frame(rows: Sequence[Mapping[str, object]]) -> Any:
    """Returns rows as a DataFrame of pandas.

    Raises:
        UserError: E477 pandas is not installed.
    """
    try:
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise fail("E477", "there is no pandas here", help="pip install pandas") from None
    return pandas.DataFrame(list(rows))
