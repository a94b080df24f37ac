"""Programs in C that load jobs: tables that `hccc compile` writes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hccc.ir import job_json
from hccc.ir.collective import OpType
from hccc.ir.job import VendorClusters, vendor_clusters
from hccc.runtime.communicator.runtime_library import build, command
from hccc.runtime.vendor.files import library_file
from hccc.synth.builtin.hetccl import hetccl
from tests.cli.commandline import process
from tests.job.test_loaded import ALONE, EVEN
from tests.vendor.conftest import installed

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
ROOT = Path(__file__).parents[2]
OPS = {OpType.ALLREDUCE: 0, OpType.ALLGATHER: 0, OpType.BROADCAST: 1}


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles the program."""
    made, library = tmp_path_factory.mktemp("client") / "client", build()
    include = ROOT / "runtime" / "communicator" / "include"
    words = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    files = [str(Path(__file__).parent / "client.c"), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([*words, *files, "-o", str(made)], check=True)
    return made


def tables(v: VendorClusters, place: Path) -> list[str]:
    """Writes the tables of three jobs, from their JSON."""
    made = []
    for op, root in OPS.items():
        job, table = place / f"{op}.json", place / f"{op}.table"
        job.write_text(job_json.dumps(hetccl(v, op, root)))
        ended = process("compile", job, "-o", table)
        assert not ended.returncode, ended.stderr
        made.append(str(table))
    return made


def printed(client: Path, each: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[str]:
    """Runs the program at ranks, each with its tables and variables; returns the last line of each.
    A vendor's library may print others."""
    common = {"HCCC_JOB": uuid.uuid4().hex, "HCCC_NRANKS": str(len(each)), "HCCC_TIMEOUT": "60"}
    started = [
        subprocess.Popen(
            [str(client), *files],
            env={**os.environ, **common, "HCCC_RANK": str(rank), **variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, (files, variables) in enumerate(each)
    ]
    try:
        return [one.communicate(timeout=120)[0].strip().rpartition("\n")[2] for one in started]
    finally:
        for one in started:
            one.kill()


@pytest.mark.slow
def test_vendor_clusters_of_one_rank(client: Path, tmp_path: Path) -> None:
    """No library is needed."""
    each = [(tables(ALONE, tmp_path), {"HCCC_STANDARD": "0"})] * 3
    assert printed(client, each) == ["right"] * 3


@pytest.mark.slow
def test_own_plans(client: Path, tmp_path: Path) -> None:
    maker = tmp_path / "hccc"  # a word that runs this very tree
    maker.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    maker.chmod(0o755)
    variables = {"HCCC_STANDARD": "1", "HCCC_COMMAND": str(maker)}
    assert printed(client, [(tables(EVEN, tmp_path), variables)] * 4) == ["right"] * 4


@pytest.mark.slow
def test_oneccl_beside_mpich(client: Path, tmp_path: Path) -> None:
    v = vendor_clusters([("oneccl", [0, 1], [0], [1]), ("mpich", [2, 3], [2, 3], [1, 1])])
    each, files = [], tables(v, tmp_path)
    for vendor in ("oneccl", "mpich"):
        file = str(library_file(vendor, installed(vendor)))
        each += [(files, {"HCCC_VENDOR": vendor, "HCCC_VENDOR_LIBRARY": file})] * 2
    assert printed(client, each) == ["right"] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hccc job 1", "hccc job 7", "it is `hccc job 7`, and `job 1` is read"),
        ("steps 30", "steps 29", "it is damaged: its checksum is another"),
        ("end ", "", "it is cut off"),
    ],
)
def test_a_wrong_table_is_told_to_every_rank(
    client: Path, tmp_path: Path, old: str, new: str, why: str
) -> None:
    """Of one rank only the table is wrong: all are told which, and why."""
    right = tables(ALONE, tmp_path)[0]
    text = Path(right).read_text()
    assert old in text
    wrong = tmp_path / "wrong.table"
    wrong.write_text(text.replace(old, new))
    each = [([str(wrong) if rank == 1 else right], {"HCCC_STANDARD": "0"}) for rank in range(3)]
    for shown in printed(client, each):
        assert f"rank 1 cannot run the job: the job's table: {why}" in shown, shown
