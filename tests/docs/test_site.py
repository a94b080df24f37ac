"""The site of docs/ builds without a warning: pages, links and anchors are all there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tests.test_architecture import ROOT

if find_spec("mkdocs") is None:
    pytest.skip("mkdocs is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site anew; a link without a target is an error."""
    folder = tmp_path_factory.mktemp("site")
    words = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def _html(site: Path, page: Path) -> str:
    return (site / page.relative_to(DOCS).with_suffix(".html")).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_tables_and_code_are_such_on_the_site(site: Path, page: Path) -> None:
    """MkDocs finds the same tables, lists and code as GitHub."""
    text = page.read_text(encoding="utf-8")
    html = _html(site, page)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    assert html.count("<table") == len(re.findall(r"^\|[ :|-]*-[ :|-]*\|$", prose, re.M))
    assert html.count("<pre") >= text.count("\n```") // 2
    assert not re.search(r"^<p>(?:.*\n)?(?:- |\d+\. |\|)", html, re.M), "a list or a table is text"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_begins_with_a_sentence(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and lines[1] == ""
    assert re.match(r"(This|In this) (page|chapter) ", lines[2]), "what is the page for?"


def test_no_link_leaves_the_pages(site: Path) -> None:
    """Files of the repository are paths in the text; GitHub's pages link to them."""
    for page in set(site.rglob("*.html")) - {site / "404.html"}:
        for target in re.findall(r'href="(?!https?:|#|data:)([^"#]+)', page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_pictures_in_words_are_marked(site: Path) -> None:
    assert '<pre class="mermaid">' in _html(site, DOCS / "architecture.md")
