"""libnccl.so.2 on a GPU: a program of NCCL's with two ranks in memory of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hccc.runtime.nccl.library import NAMES, folder
from tests.torch.job import ROOT

pytestmark = pytest.mark.slow


def test_processes(shared_gpu: Mapping[str, str], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **shared_gpu,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path]),
        "LD_PRELOAD": str(folder() / NAMES[0]),
        "HCCC_PLATFORM": "cuda",
        "HCCC_DEBUG": "INFO",
    }
    words = [sys.executable, "-m", "tests.gpu.nccl_rank", str(tmp_path / "id"), "2"]
    ranks = [
        subprocess.Popen(
            [*words, str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [one.communicate(timeout=200)[0] for one in ranks]
    assert [text.strip().splitlines()[-1] for text in printed] == ["right"] * 2, printed
    assert all("Allreduce of 5000 float32 (sum)" in text for text in printed)
