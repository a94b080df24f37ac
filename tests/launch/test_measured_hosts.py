"""`hccc profile --hosts`: hosts and the links between them become one cluster.

In quick tests nothing is measured; in slow ones hosts are network namespaces whose lines are slow.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

import benchmarks.namespaces as namespaces
from benchmarks.hosts import PROGRAM
from hccc.base.diagnostics import UserError
from hccc.ir.topology import check
from hccc.lang.cluster.load import load
from hccc.launch.hosts import Host
from hccc.launch.launch import launch
from hccc.launch.rank_commands import RankCommand
from hccc.launch.remote import Shell
from hccc.profile.hosts import _error, _profile
from hccc.profile.lines import fit
from tests.cli.commandline import Hccc, hccc
from tests.cli.test_profile import MADE
from tests.launch.test_remote import left_running

__all__ = ["hccc"]
pytestmark = pytest.mark.usefixtures("remote_shell")
QUICK = ["--ranks", "4", "--time", "0.3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, said",
    [
        (["a:2,b:2,me@a:1"], ["error[E474]", "a is given 2 times"]),
        (["a:2,b:300"], ["error[E474]", "at most 256"]),
        (["a:0"], ["error[E474]", "has no slots"]),
        (["a,b", "--device", "cuda"], ["error[E415]", "GPUs of hosts are not measured yet"]),
        (["a,b", "--device", "cpu,cuda"], ["error[E415]"]),
        (["a,down"], ["error[E474]: host down: hccc did not start there", "No route to host"]),
        (["old"], ["error[E474]: host old has hccc 0.0.1", "install the same there"]),
    ],
)
def test_what_is_not_measured(
    hccc: Hccc, tmp_path: Path, words: list[str], said: list[str]
) -> None:
    """One error, no file, and nothing is left running."""
    site = tmp_path / "site.cluster"
    code, stdout, stderr = hccc("profile", "-o", site, "--hosts", *words, *QUICK)
    usage = "E415" in said[0]
    assert (code, stdout) == (2 if usage else 1, "") and stderr.count("error[") == 1
    assert all(text in stderr for text in said), stderr
    assert not site.exists() and not left_running()


def test_a_file_of_somebody_else_stays(hccc: Hccc, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cluster"
    mine.write_text("define node1 = 1\n")
    assert "error[E430]" in hccc("profile", "-o", mine, "--hosts", "a,b")[2]
    assert mine.read_text() == "define node1 = 1\n"


@pytest.mark.slow
def test_output_of_ranks_on_hosts_is_handed_over(capfd: pytest.CaptureFixture[str]) -> None:
    """Line by line, with the rank and the stream, instead of being printed."""
    code = "import os, sys; r = os.environ['RANK']; print('a' + r); print('b' + r, file=sys.stderr)"
    heard: list[tuple[int, str, int]] = []
    launch(
        RankCommand(("python3", "-c", code), False, 2, "/"),
        [Host("a", range(1)), Host("b", range(1, 2))],
        Shell.of(None, None),
        on_line=lambda *line: heard.append(line),
    )
    assert sorted(heard) == [(r, f"{'ab'[to - 1]}{r}\n", to) for r in (0, 1) for to in (1, 2)]
    assert capfd.readouterr() == ("", "")


def test_a_profile_arrives_as_it_was() -> None:
    host, sent = Host("a", range(2)), asdict(MADE) | {"cluster": "define node1 = 8\n"}
    assert _profile(host, json.dumps({"profiles": [sent], "files": []}, indent=2)) == MADE
    for text in ("", "Welcome", "[]", '{"profiles": []}', '{"profiles": [{"cluster": ""}]}'):
        with pytest.raises(UserError, match="host a: what `hccc profile` printed"):
            _profile(host, text)
        assert _error(text) is None
    for wrong in ({"vendor": 'X"'}, {"ranks": "4"}, {"ranks": -1}, {"total": None}, {"name": 3}):
        with pytest.raises(UserError, match="host a: what `hccc profile` printed"):
            _profile(host, json.dumps({"profiles": [sent | wrong]}))
    problem = _error('{"error": {"code": "E412", "message": "no compiler", "help": "install one"}}')
    assert problem and (problem.code, problem.message) == ("E412", "no compiler")


@pytest.mark.slow
def test_an_error_of_a_host(hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/compiler")
    code, _, stderr = hccc("profile", "--hosts", "a,b", *QUICK)
    assert code == 1 and "error[E412]: host a: no C++ compiler found" in stderr
    assert stderr.count("error[") == 1


@pytest.mark.slow
def test_processes_of_this_host_become_a_cluster(hccc: Hccc, tmp_path: Path) -> None:
    """With what was measured between them, and how well α and GB/s explain it."""
    site, program = tmp_path / "site.cluster", tmp_path / "all.rccl"
    program.write_text(PROGRAM.format(n=1, each=2, ranks=2))
    code, stdout, stderr = hccc("profile", "--procs", "2", "-o", site, *QUICK, "--json")
    assert code == 0, stderr
    facts, t = json.loads(stdout), load(site)
    assert check(t) == [] and (t.n_nodes, len(t)) == (1, 2)
    assert facts["cluster"] == site.read_text() and facts["flows"] == []
    (e,) = facts["exchanges"]
    assert e["hosts"] == [0] and e["rate"] == fit(e["sizes"], e["times"]).rate
    assert f"R² {e['r2']:.3f}" in " ".join(site.read_text().replace("\n#", "").split())
    simulated = hccc("sim", program, "--cluster", site, "-b", "1M", "-e", "1M", "--json")
    assert json.loads(simulated[1])["results"][0]["time"] > 0, simulated[2]
    assert "(--procs)" in site.read_text()
    assert hccc("profile", "--procs", "2", "--hosts", "a,b")[2].startswith("error[E415]")
    said = hccc("profile", "--procs", "2", "--device", "cuda")[2]
    assert said.startswith("error[E415]: --procs --device cuda")


@pytest.mark.slow
@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("n, each", [(2, 2), (3, 1)])
def test_hosts_become_a_cluster(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, each: int
) -> None:
    """It has the rates that were measured; programs run there and are simulated. How near to one
    another these come, `benchmarks/hosts.py` says."""
    monkeypatch.setenv("HCCC_NETWORK", namespaces.DEVICE)
    site, program = tmp_path / "site.cluster", tmp_path / "all.rccl"
    program.write_text(PROGRAM.format(n=n, each=each, ranks=n * each))
    size = ["-b", "8M", "-e", "8M"]
    with namespaces.hosts(n, "1gbit") as found:
        hosts = ",".join(f"{host.namespace}:{each}" for host in found)
        code, stdout, stderr = hccc("profile", "--hosts", hosts, "-o", site, *QUICK, "--json")
        assert code == 0, stderr
        run = hccc("run", program, "--cluster", site, "--hosts", hosts, *size, "-n", "2", "--json")
    assert run[0] == 0, run[2]
    facts, t = json.loads(stdout), load(site)
    assert check(t) == [] and (t.n_nodes, len(t)) == (n, n * each)
    assert facts["cluster"] == site.read_text() and facts["files"] == [str(site)]
    kinds = [len(e["hosts"]) for e in facts["exchanges"]]
    assert kinds.count(1) == (n if each > 1 else 0) and kinds.count(2) == n * (n - 1) // 2
    far = [e for e in facts["exchanges"] if len(e["hosts"]) == 2]
    assert all(len(e["sizes"]) == len(e["times"]) and e["rate"] > 0 for e in far)
    assert [e["rate"] for e in far] == [fit(e["sizes"], e["times"]).rate for e in far]
    simulated = hccc("sim", program, "--cluster", site, *size, "--json")
    assert simulated[0] == 0, simulated[2]
    assert json.loads(simulated[1])["results"][0]["time"] > 0
    assert re.search(r"R²\s(# )?\s*[01]\.\d", site.read_text())
    assert not left_running()
