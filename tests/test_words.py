"""What can be counted of how hccc is written: words of docstrings, names, metaphors, layout."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("compiler", "runtime", "benchmarks", "examples", "scripts", "tests")
# Words that end as a verb in the third person does, and are none at the beginning of a docstring.
NOUNS = {
    *("Always", "As", "Besides", "Is", "Its", "Less", "Others", "Perhaps", "This", "Thus", "Yes"),
    *("Arguments", "Blocks", "Bytes", "Calls", "Candidates", "Channels", "Chunks", "Columns"),
    *("Devices", "Edges", "Elements", "Errors", "Events", "Facts", "Figures", "Files", "Flags"),
    *("Functions", "Groups", "Hosts", "Indices", "Items", "Keys", "Kinds", "Lines", "Links"),
    *("Names", "Nodes", "Numbers", "Options", "Pairs", "Parts", "Paths", "Pieces", "Places"),
    *("Plans", "Primitives", "Problems", "Processes", "Programs", "Proofs", "Queues", "Ranks"),
    *("Results", "Rings", "Rows", "Seconds", "Settings", "Sizes", "Slots", "Steps", "Structures"),
    *("Tables", "Tasks", "Texts", "Threads", "Times", "Transfers", "Trees", "Types", "Values"),
    *("Waits", "Words"),
}
CHAINED = re.compile(r"\b(what|who|whom|whose|those)\b", re.IGNORECASE)
METAPHORS = re.compile(
    r"\b(door|doors|patience|patient|news|gossip|heard)\b|(door|patience)_", re.I
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _sources(folders: tuple[str, ...], pattern: str) -> list[Path]:
    """Lists the tracked kinds of files of `folders`, none twice by a link."""
    paths = {path.resolve() for folder in folders for path in (ROOT / folder).rglob(pattern)}
    return sorted(path for path in paths if ROOT.resolve() in path.parents)


def _functions(path: Path) -> Iterator[tuple[Function, str]]:
    """Yields the functions of a file that have docstrings, with these."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function) and (docstring := ast.get_docstring(node)):
            yield node, docstring


def _is_property(node: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _begins_with_verb(docstring: str) -> bool:
    first = re.match(r"[A-Z][a-z-]+s\b", docstring)
    return first is not None and first[0] not in NOUNS


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Properties may be nouns; a test's name says what it tests."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {docstring.splitlines()[0]}"
        for path in _sources(FOLDERS, "*.py")
        for node, docstring in _functions(path)
        if not node.name.startswith("test_") and not _is_property(node)
        if not _begins_with_verb(docstring)
    ]
    assert not wrong, "\n".join(wrong)


def test_docstrings_chain_no_pronouns() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {' '.join(summary.split())}"
        for path in _sources(FOLDERS, "*.py")
        for node, docstring in _functions(path)
        for summary in [docstring.split("\n\n")[0]]
        if len(CHAINED.findall(summary)) > 1
    ]
    assert not wrong, "\n".join(wrong)


def test_a_class_name_is_one_thing() -> None:
    places = defaultdict[str, list[str]](list)
    for path in _sources(("compiler", "runtime"), "*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_the_formatter_lays_out_all_code() -> None:
    words = ("fmt: " + "skip", "fmt: " + "off")
    texts = {path: path.read_text(encoding="utf-8") for path in _sources(FOLDERS, "*.py")}
    assert not [path for path, text in texts.items() if any(word in text for word in words)]


def test_c_has_no_metaphors() -> None:
    paths = [p for end in ("*.h", "*.cpp", "*.inc") for p in _sources(("runtime", "compiler"), end)]
    assert paths
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    assert not {
        str(path.relative_to(ROOT)): found[0]
        for path, text in texts.items()
        if (found := METAPHORS.search(text))
    }
