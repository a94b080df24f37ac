"""Carries packages along for a machine that can download nothing.

python -m benchmarks.gpu.prepare

Puts hccc's pure-Python dependencies into `carried/`, which run.py looks into last: what the
machine has installed itself goes first. Packages with compiled code must be there already.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.gpu.paths import CARRIED

PURE = ("lark", "fastjsonschema", "defusedxml", "jinja2", "networkx")
COMPILED = ("numpy", "numba", "ml_dtypes", "scipy", "markupsafe", "cupy")


def command(into: Path) -> list[str]:
    """Returns pip's command."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
    return [*pip, "--no-deps", "--only-binary=:all:", "--target", str(into), *PURE]


def prepare(into: Path, run: Callable[[Sequence[str]], object] = subprocess.check_call) -> None:
    """Fills the folder.

    Raises:
        RuntimeError: a package turned out to have compiled code.
    """
    run(command(into))
    compiled = sorted(str(path.relative_to(into)) for path in into.rglob("*.so"))
    if compiled:
        raise RuntimeError(f"not pure Python, and may not run elsewhere: {', '.join(compiled)}")
    print(f"{into} has {', '.join(PURE)}; the machine needs {', '.join(COMPILED)} itself")


if __name__ == "__main__":
    prepare(CARRIED)
