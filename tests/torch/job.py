"""Ranks of a job as torchrun starts them: processes with its variables, and what they print.

A case is a function of `tests.torch.cases` or a module beside it, called in every rank's process:
`python -m tests.torch.job MODULE CASE...`. Each case prints `ok CASE` or its error.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PRESENT = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not PRESENT, reason="PyTorch is not installed")
LIMIT_S = 300


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def outputs(
    n: int, words: Sequence[str], environment: Mapping[str, str], limit: float = LIMIT_S
) -> list[tuple[int, str]]:
    """Runs `python WORDS` in n processes and returns their exit codes and what they printed."""
    searched = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "OMP_NUM_THREADS": "1",
        "HCCC_PROGRESS": "off",
        "PYTHONPATH": os.pathsep.join(filter(None, searched)),
        **environment,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(n)
    ]
    try:
        texts = [one.communicate(timeout=limit)[0] for one in ranks]
    finally:
        for one in ranks:
            one.kill()
    return [(one.returncode, text) for one, text in zip(ranks, texts, strict=True)]


def run(n: int, module: str, cases: Sequence[str], environment: Mapping[str, str]) -> None:
    """Runs cases in n ranks. Raises AssertionError with what was printed, where one fails."""
    words = ["-m", "tests.torch.job", module, *cases]
    for rank, (code, text) in enumerate(outputs(n, words, environment)):
        passed = [line for line in text.splitlines() if line.startswith("ok ")]
        assert (code, passed) == (0, [f"ok {case}" for case in cases]), f"rank {rank}:\n{text}"


def main(module: str, cases: Sequence[str]) -> int:
    """Calls the cases of a module, in one rank's process."""
    place = importlib.import_module(f"tests.torch.{module}")
    failed = 0
    with place.joined():
        for case in cases:
            try:
                getattr(place, case)()
                print(f"ok {case}", flush=True)
            except Exception:
                failed += 1
                print(f"{case}:\n{traceback.format_exc()}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
