"""What all tests share: golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes what the tests got over what they expect."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(stage, text)`: text must equal tests/golden/<test>/<stage>.txt; missing fails."""
    name = request.node.name.replace("[", "-").replace("]", "")
    update = request.config.getoption("--update-golden")

    def check(stage: str, text: str) -> None:
        path = GOLDEN / name / f"{stage}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: look at the text, then --update-golden"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: --update-golden?"

    return check
