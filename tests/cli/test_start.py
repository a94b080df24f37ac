"""What a short command does without: modules that take long to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAVY = {
    "defusedxml",
    "fastjsonschema",
    "hccc.driver.outputs",
    "hccc.driver.tune",
    "hccc.emit.directory",
    "hccc.emit.kernels",
    "hccc.predict",
    "hccc.sim.engine",
    "hccc.sim.simulate",
    "hccc.synth",
    "jinja2",
    "matplotlib",
    "ml_dtypes",
    "networkx",
    "numba",
    "numpy.random",
    "psutil",
    "rich",
    "scipy",
    "ssl",
    "subprocess",
    "urllib.request",
    "z3",
}
PROGRAM = """
import json, sys
from hccc.cli.execute import execute
from hccc.cli.main import cli
code = execute(cli, sys.argv[1:])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "command", [["--help"], ["check", "ring_allreduce.rccl"], ["check", "hm_allreduce.rccl"]]
)
def test_a_short_command_imports_nothing_heavy(command: list[str]) -> None:
    words = [sys.executable, "-c", PROGRAM, *command]
    subprocess.run(words, cwd=EXAMPLES, capture_output=True)  # compiles loops that are not kept yet
    run = subprocess.run(words, cwd=EXAMPLES, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert HEAVY & set(json.loads(run.stderr.splitlines()[-1])) == set()


def test_a_mistake_in_the_syntax_is_told_before_the_compiler_is_imported(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.rccl"
    wrong.write_text((EXAMPLES / "ring_allreduce.rccl").read_text() + "\n    transfer(0 1)\n")
    command = [sys.executable, "-c", PROGRAM, "check", str(wrong)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and "error[E009]" in run.stderr
    rooms = {"hccc.api", "hccc.passes", "hccc.proofs", "hccc.network"}
    assert not rooms & set(json.loads(run.stderr.splitlines()[-1]))
