"""site_pages: adapts the pages of docs/ for MkDocs, so that they read as on GitHub.

Headings get GitHub's anchors. A link to a file outside docs/ becomes the file's path, since the
site does not have that file. Mermaid's text is marked for docs/site.js.
"""

from __future__ import annotations

import html
import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)


def anchor(heading: str, separator: str) -> str:
    """Returns the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", html.unescape(heading).strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Sets these anchors in MkDocs."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page's text without links out of docs/, with its Mermaid pictures marked."""
    here = posixpath.dirname(page.file.src_uri)

    def linked(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", here, match[2].split("#")[0]))
        if path.startswith("docs/"):
            return match[0]
        return match[1] if match[1] == path else f"{match[1]} (`{path}`)"

    drawn = _MERMAID.sub(lambda m: f'<pre class="mermaid">\n{html.escape(m[1])}</pre>', markdown)
    return _LINK.sub(linked, drawn)
