"""Everything a user can do wrong on the command line: code 1, one error, nothing written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from hccc.base import dtypes
from hccc.base.diagnostics import InternalError
from hccc.cli import main as cli
from hccc.cli import types
from hccc.driver import compilation as driver
from hccc.driver import pass_manager
from tests.cli.commandline import COMMAND, Hccc, environment, process

ROOT = Path(__file__).parents[2]
RING = str(ROOT / "examples" / "ring_allreduce.rccl")
DGX = str(ROOT / "examples" / "clusters" / "dgx-h100.cluster")

# Errors of the command line itself: exit code 2.
CODES = ("E400", "E410", "E415", "E416", "E418", "E424", "E433", "E434")
USAGE = tuple(f"error[{code}]" for code in CODES)
# (command line, with {names} of the files that `place` makes; a word of the error)
CASES: dict[str, tuple[list[str], str]] = {
    "missing file": (["nothing.rccl", "-o", "{out}"], "No such file"),
    "missing plan": (["run", "nothing.json"], "No such file"),
    "directory as program": (["{foreign}", "-o", "{out}"], "plan.json"),
    "output is a file": ([RING, "-o", "{taken}"], "not a directory"),
    "output is a file, before a wrong program": (["{wrong}", "-o", "{taken}"], "not a directory"),
    "output below a file": ([RING, "-o", "{taken}/x"], "taken"),
    "output has other files": ([RING, "-o", "{foreign}"], "has files in it"),
    "binary": (["{binary}", "-o", "{out}"], "UTF-8"),
    "empty": (["{empty}", "-o", "{out}"], "empty"),
    "JSON of something else": (["{other}", "-o", "{out}"], "not a plan of hccc's"),
    "XML without an attribute": (["{xml}", "-o", "{out}"], 'write inplace="0"; it is 0 to 1'),
    "not a plan": (["{bad}", "-o", "{out}"], "not a plan"),
    "wrong program": (["{wrong}", "-o", "{out}"], "wrong.rccl"),
    "long name": (["x" * 5000, "-o", "{out}"], "name too long"),
    "nowhere to": ([RING], "-o DIR"),
    "kernels to stdout": ([RING, "-o", "-"], "-o DIR"),
    "sizes the wrong way round": (["run", RING, "-b", "1M", "-e", "1K"], "more than -e"),
    "unknown option": ([RING, "-o", "{out}", "--fast"], "--fast"),
    "unknown stop": ([RING, "--emit=xml"], "xml"),
    "unknown target": ([RING, "-o", "{out}", "--target=tpu"], "tpu"),
    "missing argument": (["check"], "ALGO"),
    "mistyped command": (["chek", RING], "'check'"),
    "extra argument": (["check", RING, RING], "extra argument"),
    "slots": ([RING, "-o", "{out}", "--slots=3"], "power of two"),
    "channels": ([RING, "-o", "{out}", "--channels=0"], "--channels"),
    "size": (["run", RING, "-b", "8X"], "8X"),
    "large size": (["run", RING, "-b", "9000000G"], "9000000G"),
    "dtype": (["run", RING, "-d", "float8"], "float8"),
    "reduction": (["run", RING, "-o", "xor"], "xor"),
    "text of a reduction": (["run", RING, "-o", "x: a +"], "ends too early"),
    "law of a reduction": (["run", RING, "-o", "x: a - b"], "not commutative"),
    "reduction of a move": (
        ["run", str(ROOT / "examples/ring_allgather.rccl"), "-o", "x: a + b"],
        "reduces nothing",
    ),
    "file of reductions": ([RING, "-o", "{out}", "--op", "{empty}"], "E403"),
    "two reductions of a name": (
        [RING, "-o", "{out}", "--op=x: a + b", "--op=x: max(a, b)"],
        "two reductions",
    ),
    "too much memory": (["run", RING, "-b", "1000G", "-e", "1000G"], "GB of memory"),
    "too much memory in steps": (["run", RING, "-e", "1T", "-i", "1"], "GB of memory"),
    "too much memory by a factor": (
        ["run", RING, "-b", "1G", "-e", "1T", "-f", "1.000001"],
        "GB of memory",
    ),
    "many sizes": (["run", RING, "-b", "1K", "-e", "1M", "-i", "1"], "more than 10,000 sizes"),
    "many sizes by a factor": (
        ["run", RING, "-b", "1K", "-e", "1M", "-f", "1.00001"],
        "-f 1.00001: more than 10,000",
    ),
    "option without effect": (["check", "{plan}", "--fuse=none"], "--fuse"),
    "stop before a plan": (["{plan}", "--emit=dag"], "dag"),
    "no kernels": (["run", "{cuda}"], "--target cpu"),
    "help of nothing": (["help", "chekc"], "'check'"),
    "empty path": ([RING, "-o", ""], "cannot be empty"),
    "stdin twice": (["check", "-", "--cluster", "-"], "given twice"),
    "trace to stdout": (["show", RING, "--cluster", DGX, "--trace", "-"], "stdout"),
    "cluster as program": (["check", DGX], "is a cluster"),
    "options of a cluster": (["show", DGX, "-o", "{out}.svg", "--channels=3"], "--channels"),
    "bytes of a cluster": (["show", DGX, "-o", "{out}.svg", "-b", "1M"], "--size"),
    "dialect of kernels": ([RING, "-o", "{out}", "--dialect=msccl"], "--dialect"),
    "target of a plan": ([RING, "--emit=plan", "--target=cpu"], "--target"),
    "passes of a plan": (["check", "{plan}", "--print-after=fuse"], "--print-after"),
    "plan and page": ([RING, "--emit=plan", "-o", "{out}.html", "--report", "{out}.html"], "both"),
    "no picture": (["show", RING, "-o", "{out}.pdf"], "neither"),
    "over a plan": (["{cuda}", "--emit=cpu", "-o", "{cuda}/plan.json"], "read, too"),
    "no work of a switch": (
        ["check", str(ROOT / "examples/sendrecv.rccl"), "--transport", "multicast"],
        "SendRecv is not one of",
    ),
    "any bits and one order": (["check", RING, "--bits", "any", "--deterministic"], "--bits any"),
    "timeout": (["run", RING, "--timeout", "nan"], "nan"),
}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a directory with one of each thing that can be in the way."""
    tmp_path = tmp_path_factory.mktemp("furnished")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "empty").write_text("")
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "bad").write_text('{"hccc_plan": 1}')
    (tmp_path / "other").write_text('{"a": 1}')
    (tmp_path / "xml").write_text('<algo name="x"/>')
    header = 'ResCCLAlgo(nRanks=2, OpType="Allreduce"):\n'
    (tmp_path / "wrong.rccl").write_text(header + "    transfer(0, 1, 0, 0, rrc)\n")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("mine")
    (tmp_path / "plan").write_text(process(RING, "--emit=plan").stdout)
    assert process(RING, "-o", tmp_path / "cuda", "--target=cuda").returncode == 0
    return tmp_path


@pytest.fixture
def place(tmp_path: Path, furnished: Path) -> Path:
    """Copies the furnished directory."""
    return shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)


def _contents(place: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}


def _argv(case: str, place: Path) -> list[str]:
    names = {p.stem: str(p) for p in place.iterdir()} | {"out": str(place / "out")}
    return [word.format(**names) for word in CASES[case][0]]


@pytest.mark.quick(14)
@pytest.mark.parametrize("case", CASES)
def test_refused(hccc: Hccc, place: Path, case: str) -> None:
    before = _contents(place)
    code, stdout, stderr = hccc(*_argv(case, place))
    assert (code, stdout) == (2 if stderr.startswith(USAGE) else 1, "")
    assert stderr.count("error[E") == 1
    assert CASES[case][1].lower() in stderr.lower()
    assert "Traceback" not in stderr
    assert _contents(place) == before


@pytest.mark.quick(14)
@pytest.mark.parametrize("case", CASES)
def test_refused_with_json(hccc: Hccc, place: Path, case: str) -> None:
    code, stdout, stderr = hccc(*_argv(case, place), "--json")
    error = json.loads(stdout)["error"]
    assert code == (2 if stderr.startswith(USAGE) else 1)
    assert error["code"].startswith("E") and error["message"]
    assert f"error[{error['code']}]" in stderr


def test_a_place_is_reported(hccc: Hccc, place: Path) -> None:
    wrong = place / "unknown.rccl"
    wrong.write_text('ResCCLAlgo(nRanks=2, OpType="Allgather"):\n    transfer(0, q, 0, 0, recv)\n')
    _, stdout, stderr = hccc("check", wrong, "--json")
    assert json.loads(stdout)["error"]["place"] == f"{wrong}:2:17"
    assert "    transfer(0, q, 0, 0, recv)" in stderr
    assert "^" in stderr


def test_kernels_of_another_plan_are_not_run(hccc: Hccc, tmp_path: Path) -> None:
    other = ROOT / "examples" / "rhd_allreduce.rccl"
    assert hccc(RING, "-o", tmp_path / "k", "--target=cpu", "--tune=off")[0] == 0
    data = json.loads(hccc(other, "--emit=plan", "--tune=off")[1]) | {"name": "ring_allreduce"}
    (tmp_path / "k" / "plan.json").write_text(json.dumps(data))
    code, _, stderr = hccc("run", tmp_path / "k")
    assert code == 1
    assert "was not made from" in stderr


@pytest.mark.parametrize("argv", [["--help"], ["-h"], [], ["compile", "-h"], ["run", "--help"]])
def test_help(hccc: Hccc, argv: list[str]) -> None:
    code, stdout, stderr = hccc(*argv)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("Usage: hccc")


def test_help_and_version_load_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from hccc.cli import execute, main\n"
        "execute.execute(main.cli, ['run', '--help'])\n"
        "heavy = {'numpy', 'numba', 'lark', 'rich', 'jinja2', 'networkx'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_version() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "hccc", "")


def _raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(driver, "compile_text", broken)


@pytest.mark.parametrize(
    "error", [InternalError("a flag is lost"), KeyError("x"), RecursionError()]
)
def test_bugs_say_so(hccc: Hccc, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    _raises(monkeypatch, error)
    code, stdout, stderr = hccc("check", RING, "--json")
    assert code == 70
    assert "this is a bug in hccc" in stderr
    assert "Traceback" not in stderr
    assert json.loads(stdout)["error"]["code"] == "internal"


def test_bugs_show_a_traceback_on_request(hccc: Hccc, monkeypatch: pytest.MonkeyPatch) -> None:
    _raises(monkeypatch, InternalError("a flag is lost"))
    monkeypatch.setenv("HCCC_DEBUG", "1")
    assert "Traceback" in hccc("check", RING)[2]


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (MemoryError(), 1, "out of memory"),
        (OSError(28, "No space left on device", "/x/y"), 1, "/x/y: No space left"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
    ],
)
def test_other_ends(
    hccc: Hccc, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, word: str
) -> None:
    _raises(monkeypatch, error)
    got, stdout, stderr = hccc("check", RING)
    assert (got, stdout) == (code, "")
    assert word in stderr if word else not stderr.strip()


@pytest.mark.slow
def test_an_interrupt_is_quiet() -> None:
    with subprocess.Popen(
        [*COMMAND, "run", RING, "-n", "1000000", "-b", "1M"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("# ring_allreduce")
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.stderr.read().strip() == ""
        assert running.wait(30) == 130


@pytest.mark.slow
def test_a_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, RING, "--emit=plan"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1


def test_stderr_of_any_encoding() -> None:
    done = process("check", "ungültig→.rccl", PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "error[E401]" in done.stderr


def test_sizes() -> None:
    def size(text: str) -> int:
        return types.Size().convert(text, None, None)

    assert [size(t) for t in ("0", "8", "1K", "4M", "1G", "1.5k", "2KiB", "3MB", "1T")] == [
        0,
        8,
        1024,
        4 << 20,
        1 << 30,
        1536,
        2048,
        3 << 20,
        1 << 40,
    ]
    for wrong in ("", "K", "-1", "1.1T", "1P", "1e3", "0x10", "١", "1 K", "nan"):
        with pytest.raises(click.BadParameter):
            size(wrong)


def test_words() -> None:
    words = types.Words(dtypes.NAMES, dtypes.ALIASES)
    assert words.convert("float,half,float32", None, None) == ("float32", "float16")
    assert words.convert("all", None, None) == dtypes.NAMES


def test_every_choice_is_known_where_it_is_made() -> None:
    """The names of options equal the keys of the tables behind them, some of which load slowly."""
    from dataclasses import fields

    from hccc.cli import options as cli_options
    from hccc.cli import sim
    from hccc.driver.options import TARGETS, Output
    from hccc.driver.outputs import OUTPUTS
    from hccc.emit import targets
    from hccc.ir.choices import Scheduler
    from hccc.predict.nccl.tuning import NcclAlgorithm
    from hccc.predict.simulation import Call

    assert {t.name for t in targets.TARGETS} == set(TARGETS)
    assert tuple(OUTPUTS) == tuple(Output)
    assert set(pass_manager.SCHEDULERS) == set(Scheduler)
    asked_otherwise = {NcclAlgorithm.P2P, NcclAlgorithm.SYMMETRIC}  # --registered
    assert set(sim.ALGORITHMS) == set(NcclAlgorithm) - asked_otherwise
    in_python = {"lengths"}  # a command line draws them: --skew
    assert set(cli_options.CALL) == {field.name for field in fields(Call)} - in_python


def test_the_command_line_offers_the_choices_of_options() -> None:
    from hccc.ir.choices import Allocator, Fusion, NetworkLowering, Scheduler
    from hccc.ir.transport import CHOICES

    choices = {
        option.name: list(option.type.choices)
        for option in cli.cli.commands["check"].params
        if isinstance(option.type, click.Choice)
    }
    assert choices["scheduler"] == ["auto", *Scheduler]
    assert choices["allocator"] == ["auto", *Allocator]
    assert choices["fuse"] == ["auto", *Fusion]
    assert choices["network_lowering"] == ["auto", *NetworkLowering]
    assert choices["transport"] == [t.name.lower() for t in CHOICES]


def test_words_that_are_nearly_right(hccc: Hccc, tmp_path: Path) -> None:
    """The help asks whether another is meant: a file of the folder, a choice, an option."""
    program, cluster = tmp_path / "ring6.rccl", tmp_path / "my.cluster"
    program.write_text("")
    cluster.write_text("define nodes = 2\n")
    _, _, said = hccc("check", tmp_path / "ring6.rcl")
    assert "error[E401]" in said and f"help: is it {str(program)!r}?" in said
    _, _, said = hccc("sim", program, cluster)
    assert f"help: is it --cluster {cluster}?" in said
    _, _, said = hccc("synth", "dgx-h100", "--collective", "all-reduce")
    assert "help: is it allreduce?" in said
    _, _, said = hccc("bound", "dgx-h100", "--collective", "allgather,all-reduce")
    assert "help: is it allreduce?" in said
    for word in ("dgx-h100", "my.cluster"):
        _, _, said = hccc("cluster", word)
        assert f"help: `hccc cluster show {word}` prints a cluster" in said
    _, _, said = hccc("cluster", "shows")
    assert "help: `hccc cluster --help`" in said
    _, _, said = hccc("synth", "dgx-h100", "--collective", "nothing")
    assert "help: `hccc synth --help`" in said
    _, _, said = hccc("show", cluster, "-o", tmp_path / "x.svg")
    assert "error[E134]" in said and "`define nodenum = 2`" in said


def test_advice_for_a_schedule_of_another_tool(hccc: Hccc) -> None:
    xml = ROOT / "examples" / "msccl" / "allreduce_ring_n8.xml"
    code, _, said = hccc("sim", xml, "--cluster", "dgx-h100", "-b", "1G", "-e", "1G")
    assert code == 0 and "warning[W401]" in said and "help: --reschedule schedules it anew" in said
