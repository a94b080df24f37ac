"""The program that README shows being refused: one chunk from the right one, and as it says."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commandline import process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WRONG = EXAMPLES / "mistakes" / "wrong_hm_allreduce.rccl"


def _body(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[:1] == " "]


def test_one_expression_is_all_that_is_wrong() -> None:
    right, wrong = _body(EXAMPLES / "hm_allreduce.rccl"), _body(WRONG)
    pairs = [(a, b) for a, b in zip(right, wrong, strict=True) if a != b]
    assert len(pairs) == 1
    assert pairs[0][0].replace("baseStep * nGpusperNode) %", "baseStep) %") == pairs[0][1]


def test_it_is_refused_as_readme_says() -> None:
    refused = process("check", WRONG)
    assert (refused.returncode, refused.stdout) == (1, "")
    said = refused.stderr.removeprefix(str(WRONG))
    assert said.startswith(":17:21: error[E203]: ")
    assert said in (EXAMPLES.parent / "README.md").read_text()
