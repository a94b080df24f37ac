"""The fixture `golden`: missing or superfluous files fail, and every folder has its test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import GOLDEN, golden_folder

pytest_plugins = ["pytester"]
TESTS = Path(__file__).parent
CONFTEST = (TESTS / "conftest.py").read_text(encoding="utf-8")


def _golden_tests() -> set[str]:
    """Returns the names of all test functions that take the fixture."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py"))
    return {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "golden" in {a.arg for a in node.args.args}
    }


def test_every_folder_has_a_test(request: pytest.FixtureRequest) -> None:
    """By function always, by parameters where all of its function's cases were collected."""
    functions = _golden_tests()
    assert functions
    items = [i for i in request.session.items if isinstance(i, pytest.Function)]
    config = request.config
    whole = not config.option.keyword and not any("::" in arg for arg in config.args)
    collected = {i.originalname for i in items} if whole else set()
    folders = {golden_folder(i.name) for i in items}
    for folder in GOLDEN.iterdir():
        function = folder.name.split("-")[0]
        assert function in functions, f"{folder}: no test of that name has golden files"
        assert function not in collected or folder in folders, f"{folder}: no case has that name"


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Makes a suite of one golden test with this repository's conftest and a right golden file."""
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("def test_one(golden):\n    golden('stage', 'right\\n')\n")
    folder = pytester.mkdir("golden") / "test_one"
    folder.mkdir()
    (folder / "stage.txt").write_text("right\n", encoding="utf-8")
    return pytester


def test_the_right_text_passes(suite: pytest.Pytester) -> None:
    suite.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize("text", [None, "wrong\n"])
def test_missing_and_different_files_fail(suite: pytest.Pytester, text: str | None) -> None:
    file = suite.path / "golden" / "test_one" / "stage.txt"
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    suite.runpytest().assert_outcomes(failed=1)
    suite.runpytest("--update-golden").assert_outcomes(passed=1)
    assert file.read_text(encoding="utf-8") == "right\n"


def test_a_file_that_no_stage_asks_for_fails(suite: pytest.Pytester) -> None:
    stale = suite.path / "golden" / "test_one" / "stale.txt"
    stale.write_text("old\n", encoding="utf-8")
    suite.runpytest().assert_outcomes(passed=1, errors=1)
    suite.runpytest("--update-golden").assert_outcomes(passed=1)
    assert not stale.exists()
