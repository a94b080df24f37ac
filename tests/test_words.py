"""What can be counted of how hccc is written: words of docstrings, names, metaphors, layout."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("compiler", "runtime", "benchmarks", "examples", "scripts", "tests")
# Words that end as a verb in the third person does, and are none at the beginning of a docstring.
NOUNS = {
    *("Always", "As", "Besides", "Is", "Its", "Less", "Others", "Perhaps", "This", "Thus", "Yes"),
    *("Arguments", "Bytes", "Candidates", "Chunks", "Columns", "Devices", "Elements", "Errors"),
    *("Events", "Facts", "Figures", "Hosts", "Indices", "Items", "Keys", "Kinds", "Nodes"),
    *("Options", "Parts", "Paths", "Primitives", "Problems", "Proofs", "Rows", "Seconds"),
    *("Settings", "Sizes", "Tasks", "Texts", "Threads", "Trees", "Types", "Words"),
}
# These may be either: nouns where one of AFTER_NOUN follows.
EITHER = {
    *("Blocks", "Calls", "Channels", "Counts", "Edges", "Files", "Flags", "Functions", "Groups"),
    *("Lines", "Links", "Names", "Numbers", "Pairs", "Pieces", "Places", "Plans", "Posts"),
    *("Processes", "Programs", "Queues", "Ranks", "Results", "Rings", "Slots", "Steps"),
    *("Structures", "Tables", "Times", "Transfers", "Values", "Waits"),
}
AFTER_NOUN = {"and", "are", "in", "of", "or", "that", "which", "with"}
CHAINED = re.compile(r"\b(what|who|whom|whose|those)\b", re.IGNORECASE)
METAPHORS = re.compile(
    r"\b(door|doors|patience|patient|news|gossip|heard)\b|(door|patience)_", re.I
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _sources(folders: tuple[str, ...], pattern: str) -> list[Path]:
    """Lists the tracked kinds of files of `folders`, none twice by a link."""
    paths = {path.resolve() for folder in folders for path in (ROOT / folder).rglob(pattern)}
    return sorted(path for path in paths if ROOT.resolve() in path.parents)


class Described(NamedTuple):
    """A function's docstring, and whether it is a command's, or may begin with any word."""

    line: int
    docstring: str
    of_command: bool
    free: bool


@cache
def _functions(path: Path) -> list[Described]:
    """Lists the functions of a file that have docstrings. The file's tree is not kept: Python's
    garbage collector would go through all of them, again and again."""
    found = list[Described]()
    statements: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in statements:
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            statements += getattr(node, part, [])
        if isinstance(node, Function) and (docstring := ast.get_docstring(node)):
            found.append(Described(node.lineno, docstring, _is_command(node), _is_free(node)))
    return found


def _is_free(node: Function) -> bool:
    """Tells whether a docstring may begin with any word: properties are nouns, a test's name says
    what it tests, and a command's docstring is its help."""
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    return node.name.startswith("test_") or is_property or _is_command(node)


def _is_command(node: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name in decorator for decorator in decorators for name in ("command", "group"))


def _begins_with_verb(docstring: str) -> bool:
    begin = re.match(r"([A-Z][a-z-]+s)\b(?:,? (\w+))?", docstring)
    if begin is None or begin[1] in NOUNS:
        return False
    return begin[1] not in EITHER or begin[2] not in AFTER_NOUN


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {one.docstring.splitlines()[0]}"
        for path in _sources(FOLDERS, "*.py")
        for one in _functions(path)
        if not one.free and not _begins_with_verb(one.docstring)
    ]
    assert not wrong, "\n".join(wrong)


def test_docstrings_chain_no_pronouns() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{one.line}: {' '.join(summary.split())}"
        for path in _sources(FOLDERS, "*.py")
        for one in _functions(path)
        for summary in [one.docstring.split("\n\n")[0]]
        if not one.of_command and len(CHAINED.findall(summary)) > 1
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
