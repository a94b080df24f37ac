"""README's commands run as they stand, one after the other, where only its files are."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.commandline import COMMAND, environment
from tests.readme import README, commands

HCCC = ".venv/bin/hccc"
NOT_RUN = {
    "python3 -m venv": "installs",
    ".venv/bin/pip install": "installs",
    ".venv/bin/pytest": "is this",
    ".venv/bin/hccc fuzz --time 10m": "takes ten minutes",
    ".venv/bin/hccc run examples/hm_allreduce.rccl --device cuda": "needs a GPU",
}
REFUSED = ".venv/bin/hccc check examples/mistakes/"
SECONDS = 600


def _not_run(command: str) -> bool:
    return any(command.startswith(skipped) for skipped in NOT_RUN)


def test_what_is_not_run_is_still_in_readme() -> None:
    for skipped in (*NOT_RUN, REFUSED):
        assert any(command.startswith(skipped) for command in commands()), skipped


@pytest.mark.slow
def test_commands_run(tmp_path: Path) -> None:
    """Later commands read what earlier ones wrote, so all run in one folder, in order."""
    shutil.copytree(README.parent / "examples", tmp_path / "examples")
    run, wrong = 0, []
    for command in commands():
        if _not_run(command):
            continue
        name, *arguments = shlex.split(command)
        assert name == HCCC, f"say in NOT_RUN why {command} is not run"
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        run += 1
        if done.returncode != int(command.startswith(REFUSED)):
            wrong.append(f"{command}\n{done.returncode}: {done.stderr or done.stdout[-500:]}")
    assert run > 10
    assert not wrong, "\n\n".join(wrong)
    assert (tmp_path / "kernels" / "plan.json").is_file()
    for written in ("here.cluster", "site.svg", "hm.html", "hm.json"):
        assert (tmp_path / written).stat().st_size
