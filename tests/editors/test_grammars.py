"""The grammars for highlighting: the texts that ship, and the words of the languages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hccc.downstream.places import EDITORS
from hccc.lang.cluster import text as cluster_text
from hccc.lang.cluster.read_site import defined, keys_of
from hccc.lang.transfer import header, jobs, tokens
from hccc.lang.transfer.calls import FUNCTIONS, JOB_CALLS, OPS

textmate = pytest.importorskip("textmate_grammar", reason="pip install textmate-grammar-python")

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAMMARS = {".rccl": "rccl", ".cluster": "cluster"}


def grammar(name: str) -> dict[str, Any]:
    path = EDITORS / "syntaxes" / f"{name}.tmLanguage.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module", params=list(GRAMMARS))
def parser(request: pytest.FixtureRequest) -> Any:
    """Makes a tokenizer of each grammar, and returns it with the suffix of its texts."""
    from textmate_grammar.parsers.base import LanguageParser

    return LanguageParser(grammar(GRAMMARS[request.param])), request.param


def scopes(parser: Any, text: str) -> dict[str, set[str]]:
    """Returns the scopes of each piece of a text that has one of its own."""
    found = dict[str, set[str]]()
    element = parser.parse_string(text)
    for (_, _), content, of in element.flatten() if element else ():
        found.setdefault(content.strip(), set()).add(of[-1])
    return found


def test_the_texts_that_ship(parser: Any) -> None:
    made, suffix = parser
    texts = sorted(EXAMPLES.rglob(f"*{suffix}"), key=lambda path: path.stat().st_size)[:8]
    assert texts
    for path in texts:
        text = path.read_text()
        found = scopes(made, text)
        assert not any("invalid" in one for of in found.values() for one in of), path
        plain = re.sub(r"#.*|\"[^\"\n]*\"", "", text)
        numbers = {
            *re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", plain if suffix == ".rccl" else "")
        }
        for number in numbers:
            assert "constant.numeric.rccl" in found[number], (path, number)


def test_every_word_of_programs_and_jobs_is_known() -> None:
    text = json.dumps(grammar("rccl"))
    words = {*FUNCTIONS, *OPS, *JOB_CALLS, *header.KEYS, *jobs.KEYS, *tokens.KEYWORDS}
    assert {word for word in words if not re.search(rf"\b{word}\b", text)} == set()


def test_every_word_of_clusters_is_known() -> None:
    found = grammar("cluster")["repository"]
    keys = {key for of in keys_of().values() for key in of}
    assert set(re.findall(r"[a-z_]{2}[a-z0-9_]*", found["key"]["match"])) == keys
    units = {*cluster_text.RATES, *cluster_text.TIMES, *cluster_text.SIZES}
    number = re.compile(found["number"]["match"])
    assert all((m := number.search(f"4 {unit}")) and m[2] == unit for unit in units)
    names = re.compile(found["define"]["match"])
    assert all((m := names.search(f"define {name}")) and m[2] == name for name in defined())
    wrong = names.search("define nothing = 3")
    assert wrong is not None and wrong[3] == "nothing"


def test_the_extension_names_files_that_are_there() -> None:
    package = json.loads((EDITORS / "package.json").read_text())
    said = package["contributes"]
    files = [one["path"] for one in said["grammars"]]
    files += [one["configuration"] for one in said["languages"]]
    assert all((EDITORS / name).is_file() for name in [*files, package["main"]])
    ids = {one["id"] for one in said["languages"]}
    assert {one["language"] for one in said["grammars"]} == ids
    assert all(f'language: "{name}"' in (EDITORS / "extension.js").read_text() for name in ids)
