"""Inputs of commands: pipes, devices and endless texts are read once, any name travels."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path

import pytest

from hccc.driver import inputs
from hccc.ir import plan_json
from hccc.ir.schema import schema_of
from tests.cli.commandline import Hccc
from tests.lang import test_teccl as teccl
from tests.marks import slow

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = EXAMPLES / "ring_allreduce.rccl"
CLUSTER = EXAMPLES / "clusters" / "resccl-topo4.cluster"
XML = ("--transport", "staged", "--allocator", "connection", "--emit=msccl-xml")
EMIT = {"program": ("--emit=program",), "plan": ("--emit=plan",), "xml": XML}


@contextmanager
def piped(place: Path, blocks: Iterator[bytes]) -> Iterator[Path]:
    """Yields a named pipe that gives `blocks` once, and then its end."""
    pipe = place / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        try:
            with pipe.open("wb") as file:
                for block in blocks:
                    file.write(block)
        except BrokenPipeError:
            pass  # the reader has closed it

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield pipe
    writer.join(30)
    assert not writer.is_alive()
    pipe.unlink()


@pytest.mark.parametrize("kind", EMIT)
def test_a_pipe_is_read_once(hccc: Hccc, tmp_path: Path, kind: str) -> None:
    text = hccc(RING, *EMIT[kind])[1].encode()
    with piped(tmp_path, iter([text])) as pipe:
        code, stdout, stderr = hccc("check", pipe)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("ring_allreduce: Allreduce over 8 ranks")


@pytest.mark.parametrize("shown", [RING, CLUSTER])
def test_a_piped_text_is_drawn(hccc: Hccc, tmp_path: Path, shown: Path) -> None:
    with piped(tmp_path, iter([shown.read_bytes()])) as pipe:
        assert hccc("show", pipe, "-o", tmp_path / "x.svg")[0] == 0


@pytest.mark.parametrize("text", ["<", "{", "a", " ", "\0", "define x = 1\n"])
@pytest.mark.parametrize("command", ["check", "show"])
def test_an_endless_text_is_read_to_its_limit(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: str
) -> None:
    for kind in (inputs.ProgramInput, inputs.PlanInput, inputs.XmlInput, inputs.ClusterInput):
        monkeypatch.setattr(kind, "most", 1 << 20)
    more = ["-o", tmp_path / "x.svg"] if command == "show" else []
    with piped(tmp_path, repeat(text.encode() * 4096)) as pipe:
        code, stdout, stderr = hccc(command, pipe, *more)
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"error[E404]: {pipe} is larger than 1 MiB")


def test_an_endless_cluster_is_read_to_its_limit(hccc: Hccc, tmp_path: Path) -> None:
    with piped(tmp_path, repeat(b"#" * 4096)) as pipe:
        code, _, stderr = hccc("sim", RING, "--cluster", pipe)
    assert code == 1 and "error[E404]" in stderr


def test_every_kind_has_its_own_limit() -> None:
    assert inputs.ProgramInput.most == 128 << 20
    assert inputs.PlanInput.most == 256 << 20
    assert inputs.XmlInput.most == inputs.ClusterInput.most == 8 << 20


def test_a_device_is_no_plan(hccc: Hccc) -> None:
    code, _, stderr = hccc("check", "/dev/zero")
    assert code == 1 and "error[E404]" in stderr


NAMES = [
    b"two\nlines",
    b"tab\tbell\a",
    b"latin-1 \xe9\xff",
    "\u202eright to left".encode(),
    b"no comment *\\",
    "größe→".encode(),
    b"x" * 255,
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["program", slow("xml")])
def test_any_file_name_gives_a_plan_that_is_read_again(
    hccc: Hccc, tmp_path: Path, name: bytes, kind: str
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.write_text(hccc(RING, *EMIT[kind])[1])
    assert hccc(path, "-o", tmp_path / "k", "--target=cpu")[0] == 0
    code, _, stderr = hccc("check", tmp_path / "k")
    assert (code, stderr) == (0, "")


@pytest.mark.slow
def test_a_long_path_keeps_its_end(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    deep = Path(*["d" * 200] * 6)
    deep.mkdir(parents=True)
    (deep / "ring.xml").write_text(hccc(RING, *XML)[1])
    text = hccc(deep / "ring.xml", "--emit=plan")[1]
    source = plan_json.loads(text).source
    assert len(source) == 1024 and source.endswith(f"{'d' * 200}/ring.xml")


@pytest.mark.parametrize("name", ["hccc", "HCCC", "hccc_shape", "Hccc_x", "clean", "install"])
def test_names_that_are_taken_are_no_algorithms(hccc: Hccc, tmp_path: Path, name: str) -> None:
    """They would meet hccc's own C names, or targets that CMake has in every project."""
    program, plan, xml = (tmp_path / n for n in ("p.rccl", "p.json", "p.xml"))
    program.write_text(RING.read_text().replace('"ring_allreduce"', f'"{name}"'))
    plan.write_text(
        hccc(RING, "--emit=plan", "--tune=off")[1].replace('"ring_allreduce"', f'"{name}"')
    )
    xml.write_text(hccc(RING, *XML)[1].replace('"ring_allreduce"', f'"{name}"'))
    assert "error[E012]" in hccc("check", program)[2]
    assert "error[E310]" in hccc("check", plan)[2]
    assert hccc("check", xml)[1].startswith(f"msccl_{name}: ")


def test_the_schema_and_the_checks_agree_on_the_length_of_a_source() -> None:
    from hccc.ir import names, plan_check

    assert names.MAX_SOURCE == plan_check.MAX_TEXT
    assert schema_of("plan")["properties"]["source"]["maxLength"] == names.MAX_SOURCE


@pytest.mark.slow
def test_names_that_differ_in_case_have_headers_of_their_own(hccc: Hccc, tmp_path: Path) -> None:
    """Both of them in one translation unit: neither guard hides the other."""
    for name in ("ring", "RING"):
        program = tmp_path / f"{name}.rccl"
        program.write_text(RING.read_text().replace('"ring_allreduce"', f'"{name}"'))
        assert hccc(program, "-o", tmp_path / name.center(6, "_"), "--target=cpu")[0] == 0
    headers = [path.read_text().splitlines() for path in sorted(tmp_path.rglob("[rR]*.h"))]
    guards = [line for text in headers for line in text if line.startswith("#ifndef")]
    assert len(set(guards)) == 2


@pytest.mark.slow
def test_lines_before_a_kind_do_not_hide_it() -> None:
    blank = "".join(chain(repeat("\n", 5000)))
    assert inputs.kind_of(f"{blank}<algo>") is inputs.XmlInput
    assert inputs.kind_of(f"{blank}# words\n{{") is inputs.ProgramInput
    assert inputs.kind_of(f"# words\n{blank}define x = 1") is inputs.ClusterInput


def test_it_is_checked_and_run_like_a_program(hccc: Hccc, tmp_path: Path) -> None:
    file = tmp_path / "line.json"
    file.write_text(teccl.text_of(teccl.gather([0, 1, 2]), "7-chunk paths"))
    code, out, err = hccc("check", file)
    assert code == 0, err
    assert out.startswith("teccl_allgather_3: Allgather over 3 ranks")
    code, out, err = hccc("run", file, "-b", "4K", "-e", "4K", "-n", "1")
    assert code == 0, err
    assert "Out of bounds values : 0 OK" in out


def test_a_schedule_that_lacks_a_path_is_told(hccc: Hccc, tmp_path: Path) -> None:
    paths = teccl.gather([0, 1, 2])
    for key in [key for key in paths if key.startswith("Demand at 2 for chunk 0 from 0")]:
        paths[key] = ["0->1 in epoch 0"]
    file = tmp_path / "line.json"
    file.write_text(teccl.text_of(paths))
    code, _, err = hccc("check", file)
    assert code == 1
    assert "E205" in err
