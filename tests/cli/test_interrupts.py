"""Ctrl-C ends every command at once, whatever compiled code is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hccc.base.interruptible import at_once, interruptible
from tests.cli.commandline import COMMAND, ROOT, environment
from tests.marks import some

EXAMPLES = ROOT / "examples"
HM, DGX = EXAMPLES / "hm_allreduce.rccl", EXAMPLES / "clusters" / "dgx-h100.cluster"
RING = EXAMPLES / "ring_allreduce.rccl"
XML = ROOT / "tests" / "interop" / "data" / "allreduce_pair_n2.xml"
# In place of a pass: one call of native code that takes a day, and hears nothing meanwhile.
LONG = """
import hashlib, importlib, sys
from functools import reduce
def long(*args, **kwargs):
    print("here", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)
where, name = sys.argv.pop(1).split(":")
*path, name = name.split(".")
holder = reduce(getattr, path, importlib.import_module("hccc." + where))
if isinstance(holder, dict):
    holder.update(dict.fromkeys(holder, long))
else:
    setattr(holder, name, long)
from hccc.cli.main import main
main()
"""
OUT = "OUT"  # a name that a test replaces
CHECK = ("check", RING)
PLACES = {
    "parsing": ("driver.compilation:transfer.parse", CHECK),
    "verify": ("driver.pass_manager:verify", CHECK),
    "depend": ("driver.pass_manager:depend", CHECK),
    "schedule": ("driver.pass_manager:SCHEDULERS.all", CHECK),
    "lower": ("driver.pass_manager:lower", CHECK),
    "fuse": ("driver.pass_manager:fuse", CHECK),
    "place": ("driver.pass_manager:place", CHECK),
    "allocate": ("driver.pass_manager:allocate", CHECK),
    "sync": ("driver.pass_manager:sync", CHECK),
    "deadlock": ("proofs.prove:deadlock", CHECK),
    "race": ("proofs.prove:race", CHECK),
    "result": ("proofs.prove:result", CHECK),
    "files": ("emit.directory:files", (RING, "-o", OUT)),
    "emit plan": ("ir.plan_json:dumps", (RING, "--emit=plan")),
    "emit kernels": ("emit.kernels.source:cpu", (RING, "--emit=cpu")),
    "emit XML": (
        "interop.export_msccl:_xml",
        (RING, "--emit=msccl-xml", "--transport=staged", "--tune=off"),
    ),
    "MSCCL XML": ("interop.import_msccl:fifo", ("check", XML)),
    "reschedule": ("interop.raise_program:raise_program", ("check", XML, "--reschedule")),
    "run": ("emit.directory:files", ("run", RING)),
    "simulate": ("sim.compiled:run", ("sim", RING, "--cluster", DGX)),
    "fastest": ("sim.compiled:run", ("check", RING, "--cluster", DGX)),
    "explain": ("predict.explanation:limits", ("explain", RING, "--cluster", DGX)),
    "timeline": ("pictures.page:timeline", ("show", RING, "--cluster", DGX, "-o", f"{OUT}.html")),
    "topology": ("pictures.page:topology", ("show", DGX, "-o", f"{OUT}.svg")),
}


def _interrupted(running: subprocess.Popen[str], place: Path) -> None:
    """Presses Ctrl-C and checks that `running` leaves nothing."""
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert (out, err.strip()) == ("", "")
    assert list(place.iterdir()) == []


QUICK = ("schedule", "files")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in PLACES]
)
def test_an_interrupt_is_heard(name: str, tmp_path: Path) -> None:
    where, argv = PLACES[name]
    given = [str(a).replace(OUT, str(tmp_path / "out")) for a in argv]
    with subprocess.Popen(
        [sys.executable, "-c", LONG, where, *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "here\n"
        time.sleep(0.1)
        _interrupted(running, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", some([2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0], 2))
def test_an_interrupt_is_heard_in_a_large_program(seconds: float, tmp_path: Path) -> None:
    text = HM.read_text().replace("nRanks=32", "nRanks=2048").replace("nNodes = 4", "nNodes = 256")
    large = tmp_path / "in" / "large.rccl"
    large.parent.mkdir()
    large.write_text(text)
    (tmp_path / "out").mkdir()
    with subprocess.Popen(
        [*COMMAND, str(large), "-o", str(tmp_path / "out" / "kernels")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as running:
        time.sleep(seconds)
        _interrupted(running, tmp_path / "out")


def test_errors_come_through_with_their_traceback() -> None:
    def fails(x: int) -> int:
        raise ValueError(x)

    with pytest.raises(ValueError) as raised:
        interruptible(fails)(3)
    assert raised.traceback[-1].name == "fails"


def test_other_threads_compute_themselves() -> None:
    inner = interruptible(threading.get_ident)
    outer = interruptible(lambda: (threading.get_ident(), inner()))
    assert len(set(outer())) == 1
    assert inner() != threading.get_ident()


def test_several_computations_give_their_results_in_order() -> None:
    def late(x: int) -> int:
        time.sleep(0.02 * (x % 3))
        return x * x

    assert at_once(late, range(10)) == [x * x for x in range(10)]
    assert at_once(late, []) == []


def test_of_several_exceptions_the_first_items_is_raised() -> None:
    def fails(x: int) -> int:
        time.sleep(0.05 * (3 - x))
        if x:
            raise ValueError(x)
        return x

    with pytest.raises(ValueError, match="1"):
        at_once(fails, range(4))


def test_several_interrupted_computations_do_not_go_on() -> None:
    """Neither running nor waiting computations."""
    begun, ended = list[int](), list[int]()

    def computes(x: int) -> None:
        begun.append(x)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)
        try:
            for _ in range(10_000):
                time.sleep(0.01)
        finally:
            ended.append(x)

    with pytest.raises(KeyboardInterrupt):
        interruptible(at_once)(computes, range(100))
    until = time.monotonic() + 20
    while len(ended) < len(begun) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(begun) == sorted(ended) and len(begun) < 10


def test_what_is_interrupted_does_not_go_on() -> None:
    """The interpreter's next step ends it: its result is not needed."""
    begun, ended = threading.Event(), threading.Event()

    def computes() -> None:
        begun.set()
        try:
            for _ in range(10_000):
                time.sleep(0.01)
        finally:
            ended.set()

    def presses() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=presses, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(computes)()
    assert ended.wait(20)
