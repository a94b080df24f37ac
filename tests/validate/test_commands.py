"""`hccc check DIR` and `--validate`: their messages, and that nothing wrong is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import hccc as library
from hccc.base.diagnostics import UserError
from hccc.driver import outputs
from hccc.driver.compiled import CheckedDirectory
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue
from hccc.validate.validated import Unvalidated, Validated
from tests.cli.commandline import Hccc, hccc

__all__ = ["hccc"]
RING = Path(__file__).parents[2] / "examples" / "ring_allreduce.rccl"
ALONE = "--tune=off"  # one plan
CLAIM = "the text of 3 targets does what the plan says: 104 primitives, 272 operands"


@pytest.mark.slow
def test_check_says_what_was_validated(hccc: Hccc, tmp_path: Path) -> None:
    code, out, err = hccc(RING, ALONE, "-o", tmp_path / "k", "--validate")
    assert (code, err) == (0, "") and f"validated      {CLAIM}" in out
    code, out, err = hccc("check", tmp_path / "k")
    assert (code, err) == (0, "") and f"kernels   {CLAIM}" in out
    facts = json.loads(hccc("check", tmp_path / "k", "--json")[1])
    assert facts["validated"]["targets"] == ["cpu", "cuda", "hip"]
    assert facts["validated"]["waits"] == 96
    facts = json.loads(hccc(RING, ALONE, "-o", tmp_path / "k", "--validate", "--json")[1])
    assert facts["validated"]["operands"] == 272


def test_an_edited_text_is_not_run(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that it differs, and nothing of what it would do."""
    hccc(RING, ALONE, "-o", tmp_path / "k")
    monkeypatch.setattr(outputs, "validate_present", lambda *_: pytest.fail("is run"))
    text = tmp_path / "k" / "ring_allreduce.hip"
    body = text.read_text()
    for edited in (body + "\n// by hand\n", body.replace("hccc_waits(i)", "hccc_waits(0)")):
        text.write_text(edited)
        code, _, told = hccc("check", tmp_path / "k")
        assert code == 1 and "E428" in told and "note:" not in told


def test_nothing_is_written_that_is_not_right(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = outputs.kernels

    def wrong(catalogue: Catalogue, targets: Sequence[Target]) -> dict[str, str]:
        made = emit(catalogue, targets)
        return {name: text.replace("rank + 1", "rank + 2") for name, text in made.items()}

    monkeypatch.setattr(outputs, "kernels", wrong)
    code, _, told = hccc(RING, ALONE, "-o", tmp_path / "k", "--validate")
    assert code == 1 and "E438" in told and "a bug in hccc" in told
    assert not (tmp_path / "k").exists()


def test_without_a_compiler(hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hccc(RING, ALONE, "-o", tmp_path / "k", "--target=cpu,hip")
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, out, _ = hccc("check", tmp_path / "k")
    assert code == 0
    assert "kernels   not run, only compared: no C++ compiler found ($CXX is `no-such-" in out
    assert out.endswith("(for cpu, hip)\n")
    code, _, told = hccc(RING, ALONE, "-o", tmp_path / "other", "--validate")
    assert code == 1 and "E412" in told and not (tmp_path / "other").exists()


def test_validate_is_of_directories(hccc: Hccc) -> None:
    code, _, told = hccc(RING, "--emit=cuda", "--validate")
    assert code == 2 and "--validate" in told


def checked(place: Path) -> CheckedDirectory:
    """Checks a directory from Python."""
    found = library.check(place)
    assert isinstance(found, CheckedDirectory)
    return found


@pytest.mark.slow
def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = library.compile(RING)
    assert library.write(compiled, tmp_path / "k", ["cuda"]).validated is None
    written = library.write(compiled, tmp_path / "k", ["cuda"], validate=True)
    assert isinstance(written.validated, Validated) and written.validated.targets == ("cuda",)
    assert checked(tmp_path / "k").validated == written.validated
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert isinstance(checked(tmp_path / "k").validated, Unvalidated)
    with pytest.raises(UserError, match="E412"):
        library.write(compiled, tmp_path / "k", validate=True)
