"""Output of `hccc ALGO --emit=STAGE` for small algorithms, Program to Plan, as golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hccc.base.version import __version__
from tests.cli.commandline import Hccc, hccc
from tests.conftest import Golden

__all__ = ["hccc"]
STAGES = ("program", "dag", "pipeline", "plan")
RING = """\
ResCCLAlgo(nRanks=4, nChannels=1, nWarps=16, AlgoName="ring", OpType="Allreduce"):
    for r in range(nRanks):
        for s in range(nRanks - 1):
            transfer(r, (r + 1) % nRanks, s, (r - s) % nRanks, rrc)
            transfer(r, (r + 1) % nRanks, nRanks - 1 + s, (r + 1 - s) % nRanks, recv)
"""
MESH = """\
ResCCLAlgo(nRanks=4, nChannels=2, nWarps=8, AlgoName="mesh", OpType="Allreduce", GPUPerNode=2):
    for r in range(nRanks):
        for k in range(1, nRanks):
            transfer((r + k) % nRanks, r, k - 1, r, rrc)
            transfer(r, (r + k) % nRanks, nRanks + k, r, recv)
"""
TREE = """\
ResCCLAlgo(nRanks=4, AlgoName="tree", OpType="Broadcast", nChunks=2, Root=1):
    for c in range(nChunks):
        for s in range(2):
            for i in range(2 ** s):
                transfer((i + Root) % nRanks, (i + 2 ** s + Root) % nRanks, s, c, recv)
"""
ALLTOALL = """\
ResCCLAlgo(nRanks=4, AlgoName="direct", OpType="Alltoall"):
    for s in range(nRanks):
        for k in range(1, nRanks):
            transfer(s, (s + k) % nRanks, k, s * nRanks + (s + k) % nRanks, recv)
"""
ALGORITHMS = {"ring": RING, "mesh": MESH, "tree": TREE, "alltoall": ALLTOALL}


def _printed(hccc: Hccc, folder: Path, name: str, stage: str, *options: str) -> str:
    program = folder / f"{name}.rccl"
    program.write_text(ALGORITHMS[name], encoding="utf-8")
    as_written = ["--tune=off"] if stage == "plan" else []  # else for an assumed cluster
    code, out, err = hccc(program, f"--emit={stage}", *as_written, *options)
    assert code == 0, err
    return out.replace(f'"hccc": "{__version__}"', '"hccc": "VERSION"')


@pytest.mark.parametrize("name", ALGORITHMS)
def test_stages(name: str, golden: Golden, hccc: Hccc, tmp_path: Path) -> None:
    for stage in STAGES:
        golden(stage, _printed(hccc, tmp_path, name, stage))


def test_staged_stages(golden: Golden, hccc: Hccc, tmp_path: Path) -> None:
    """The same ring with queues: only the plan differs."""
    golden("plan", _printed(hccc, tmp_path, "ring", "plan", "--transport", "staged"))
