"""Which hosts have which ranks, as lists and files say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.launch.hosts import Host, hosts_of
from hccc.launch.processes import shared_out
from hccc.launch.remote import Shell

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)


def spans(text: str, n: int) -> list[tuple[str, int, int]]:
    return [(host.login, host.ranks.start, host.ranks.stop) for host in hosts_of(text, n)]


@pytest.mark.parametrize(
    "text, n, found",
    [
        ("a:4,b:4", 8, [("a", 0, 4), ("b", 4, 8)]),
        ("a:3, b:4", 5, [("a", 0, 3), ("b", 3, 5)]),
        ("a:2,b:2,a:2", 6, [("a", 0, 2), ("b", 2, 4), ("a", 4, 6)]),
        ("a,b", 8, [("a", 0, 4), ("b", 4, 8)]),
        ("a,b:7", 8, [("a", 0, 1), ("b", 1, 8)]),
        ("a:8,b:8", 8, [("a", 0, 8)]),
        ("me@a.example:2,10.0.0.7:1", 3, [("me@a.example", 0, 2), ("10.0.0.7", 2, 3)]),
        ("[fe00::1]:2,me@[::2]:2", 4, [("fe00::1", 0, 2), ("me@::2", 2, 4)]),
    ],
)
def test_lists(text: str, n: int, found: list[tuple[str, int, int]]) -> None:
    assert spans(text, n) == found


def test_files(tmp_path: Path) -> None:
    """As mpirun's: comments, spaces, words that are for mpirun."""
    file = tmp_path / "hosts"
    file.write_text(
        "# two nodes\n\na slots=3 max_slots=9\n  me@b   slots = 2  # the other\nc:1\nd\n"
    )
    assert spans(str(file), 7) == [("a", 0, 3), ("me@b", 3, 5), ("c", 5, 6), ("d", 6, 7)]


@pytest.mark.parametrize(
    "text, n, said",
    [
        ("", 2, "names no host"),
        (",", 2, "names no host"),
        ("-oProxyCommand=x:2", 2, "is no host"),
        ("me@-x:2", 2, "is no host"),
        ("a b:2", 2, "is no host"),
        ("$(reboot):2", 2, "is no host"),
        ("a:0", 2, "has no slots"),
        ("a:x", 2, "is no host"),
        ("a:2,b:1", 8, "8 ranks, and slots for 3 of them"),
        ("a,b,c", 8, "cannot be shared out evenly among 3 hosts"),
        ("/no/such/file", 2, "cannot read"),
    ],
)
def test_hosts_that_are_none(text: str, n: int, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        hosts_of(text, n)


@pytest.mark.parametrize("line", ["-x slots=2", "a slots=", "a slots=2 & reboot", "a slots=-2"])
def test_lines_of_files_that_are_none(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(UserError, match="hosts:2: ") as error:
        hosts_of(str(file), 2)
    assert error.value.problem.code == "E474"


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES, st.integers(1, 9)), min_size=1, max_size=9), st.data())
def test_every_rank_is_on_one_host(slots: list[tuple[str, int]], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, sum(count for _, count in slots)))
    found = hosts_of(",".join(f"{name}:{count}" for name, count in slots), n)
    assert [rank for host in found for rank in host.ranks] == list(range(n))
    assert all(len(host.ranks) <= count for host, (_, count) in zip(found, slots, strict=False))


@pytest.mark.slow
@given(st.text(max_size=30))
def test_what_a_remote_shell_is_given_is_a_name(text: str) -> None:
    """Whatever is written, nothing that a shell or ssh would take for something else."""
    try:
        found = hosts_of(text, 1)
    except UserError:
        return
    for host in found:
        assert re.fullmatch(r"[A-Za-z0-9_:][A-Za-z0-9_.:@-]*", host.login, re.A)


def test_processes_of_several_ranks() -> None:
    two = [Host("a", range(4)), Host("b", range(4, 8))]
    assert [shared_out(8, n, two) for n in (0, 2, 4, 8)] == [1, 4, 2, 1]
    assert shared_out(8, 1, []) == 8
    for n, hosts in (
        (3, two),
        (1, two),
        (9, []),
        (4, [Host("a", range(5)), Host("b", range(5, 8))]),
    ):
        with pytest.raises(UserError, match=f"--procs {n}"):
            shared_out(8, n, hosts)


def test_the_command_of_a_remote_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option comes before its variable; a path is quoted for the shell at the other end."""
    monkeypatch.delenv("HCCC_RSH", raising=False)
    monkeypatch.delenv("HCCC_REMOTE_PYTHON", raising=False)
    assert Shell.of(None, None).line("a")[0] == "ssh"
    monkeypatch.setenv("HCCC_RSH", "rsh -p '7 7'")
    monkeypatch.setenv("HCCC_REMOTE_PYTHON", "/opt/my python")
    assert Shell.of(None, None).line("me@a") == [
        "rsh",
        "-p",
        "7 7",
        "me@a",
        "'/opt/my python'",
        "-P",
        "-m",
        "hccc.launch.host",
    ]
    assert Shell.of("x", "p").line("a")[:3] == ["x", "a", "p"]
    for wrong in ("'", " "):
        with pytest.raises(UserError, match="is no command"):
            Shell.of(wrong, None)
