"""Citations: pages and sections cited in code exist, and paths and names in pages exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, commands
from tests.test_architecture import ROOT

FOLDERS = ("compiler", "runtime", "templates", "benchmarks", "tests", "examples", "scripts")
KINDS = {".py", ".h", ".lark", ".jinja", ".inc", ".c", ".cpp", ".cmake", ".sh"}
PAGES = {page.stem: page for page in DOCS.glob("*.md")}
# Every page for people. The CHANGELOG names former files, too.
READ = sorted(
    {
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *DOCS.rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    }
)

NOT_HCCC = {("downstream.md", "--no-build-isolation")}  # pip's
_NAME = re.compile(r"\b(?:hccc_|hccc[A-Z]|hcccrt|HCCC_)\w+\b")
MADE = {"allreduce.h", "job.py", "demo.c"}  # by a build, or by the reader
ELSEWHERE = {"docs/legacy.md"}  # of DeepEP


def _sources() -> list[Path]:
    """Returns every text that may cite a page, links not followed, this file left out."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in KINDS and path.is_file() and path != Path(__file__)
    ]


def _sections(page: str) -> set[str]:
    """Returns the numbers of a page's sections, `4` of `## 4. Flags`."""
    return set(re.findall(r"^## (\d+)\. ", PAGES[page].read_text(encoding="utf-8"), re.M))


def _cited(text: str) -> list[tuple[str, str]]:
    """Returns (page, section) of each citation: `kernel-protocol §4, §5`, `docs/x.md`, `docs/x.md
    §2`."""
    text = re.sub(r"\n\s*(?://|#|\*)?\s*", " ", text)
    pages = "|".join([r"docs/[\w-]+\.md", *map(re.escape, PAGES)])
    found = []
    for match in re.finditer(rf"(?<![\w./-])({pages})((?:,? §[\d.]+)*)", text):
        page = match[1].removeprefix("docs/").removesuffix(".md")
        numbers = re.findall(r"§(\d+)", match[2])
        if numbers or match[1].startswith("docs/"):
            found += [(page, number) for number in numbers] or [(page, "")]
    return found


def test_what_code_cites_exists() -> None:
    cited = [(path, *c) for path in _sources() for c in _cited(path.read_text(encoding="utf-8"))]
    assert len(cited) > 30
    wrong = [
        f"{path.relative_to(ROOT)}: {page} §{number}"
        for path, page, number in cited
        if page not in PAGES or (number and number not in _sections(page))
    ]
    assert wrong == []


def test_citations_are_recognised() -> None:
    text = "x (kernel-protocol §4, §5) and (docs/nowhere.md §3), the kernel-protocol; docs/a-b.md"
    assert _cited(text) == [
        ("kernel-protocol", "4"),
        ("kernel-protocol", "5"),
        ("nowhere", "3"),
        ("a-b", ""),
    ]


def test_nothing_cites_what_is_not_here() -> None:
    gone = re.compile(r"\bDESIGN\b|\brefs (?:to|/)|\b(?:kernels|layout)\.md\b")
    assert [
        str(path.relative_to(ROOT))
        for path in _sources()
        if gone.search(path.read_text(encoding="utf-8"))
    ] == []


def _named(text: str) -> set[str]:
    """Returns the repository's paths in a text, in code spans or not; NAME stands for any name."""
    found = re.findall(rf"(?<![\w./<-])((?:{'|'.join(FOLDERS)}|docs)/[\w./+-]*)(?![\w*{{<])", text)
    return {path.rstrip(".") for path in found if "NAME" not in path}


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_exists(page: Path) -> None:
    """Links within the repository, sections of links, and paths that a page names."""
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)", text):
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor[1:] in _anchors(linked), f"{page.name} links to {target}{anchor}"
    missing = [
        path for path in _named(text) - ELSEWHERE if not list(ROOT.glob(f"{path.rstrip('/')}*"))
    ]
    assert missing == [], page.name


def _spans(page: Path) -> list[str]:
    """Returns the code spans of a page, without blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def test_pages_name_options_that_exist() -> None:
    """`--option VALUE` in a code span of docs/ is one of some command."""
    options = {
        option
        for _, command in commands()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    named = {
        (page.name, option)
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for span in _spans(page)
        if span.startswith("--")
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)
    }
    assert len(named) > 50
    assert {(page, option) for page, option in named if option not in options} == NOT_HCCC


def test_pages_name_functions_and_variables_that_exist() -> None:
    """`hccc_x`, `hcccX` and `HCCC_X` in a code span are words of the code."""
    words = set()
    for path in _sources():
        words |= set(_NAME.findall(path.read_text(encoding="utf-8")))
    named = {
        (page.name, name) for page in READ for span in _spans(page) for name in _NAME.findall(span)
    }
    assert len(named) > 100
    assert {(page, name) for page, name in named if name not in words} == set()


def test_pages_name_files_that_exist() -> None:
    """`canvas.py`, without its folder, is a file somewhere."""
    files = {path.name for path in _sources()} | {Path(__file__).name, *MADE}
    ending = "|".join(kind.removeprefix(".") for kind in KINDS)
    named = {
        (page.name, name)
        for page in READ
        for span in _spans(page)
        for name in re.findall(rf"^(?:[\w-]+/)*([\w-]+\.(?:{ending}))$", span)
        if "NAME" not in name
    }
    assert len(named) > 50
    assert {(page, name) for page, name in named if name not in files} == set()


def test_paths_are_recognised() -> None:
    text = "`compiler/ir/plan.py`, docs/x.md. compiler/passes/NAME.py, `/tmp/tests/x`, a/docs/x.md"
    assert _named(text) == {"compiler/ir/plan.py", "docs/x.md"}


def _anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {head.replace(" ", "-") for head in plain}
