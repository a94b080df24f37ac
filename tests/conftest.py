"""Fixtures and options of all tests: golden files, generated tables in docs/, the installed
wheel."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.installed import Installed, root_of, shared
from tests.marks import LONG

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
Golden = Callable[[str, str], None]
UPDATE = "look at the text, then run pytest with --update-golden"
CPU_DEVICES = 2  # of this process and its children
LEVELS = {"not slow": "-O0", "slow": "-O1"}  # of the suites; users have -O3
LONGEST = ("tests/torch/", "tests/docs/test_chapters.py", "tests/launch/", "tests/examples/")
_PASSED = pytest.StashKey[bool]()
# A change fails for what it changed: its random cases are the same in each run. With HCCC_LONG they
# are others each time. How fast a machine is fails nothing.
settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=LONG == 1,
)
settings.load_profile("suite")
# Of scripts/mutate, which asks whether a test fails, not for the least example.
settings.register_profile("mutants", deadline=None, phases=(Phase.explicit, Phase.generate))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`, which overwrites the expected texts with the actual ones, and
    `--part K/N`, which runs every N-th test, from the K-th on (0 is the first)."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files")
    parser.addoption("--part", type=_part, default=(0, 1), metavar="K/N", help="every N-th test")


def _part(text: str) -> tuple[int, int]:
    """Reads `1/3`: (1, 3). Raises ValueError for what is no part."""
    k, n = map(int, text.split("/"))
    if not 0 <= k < n:
        raise ValueError(f"{text}: K is not in 0..N-1")
    return k, n


def pytest_configure(config: pytest.Config) -> None:
    """Restores Ctrl-C for this process and its children: shells start background jobs, and nohup
    starts its command, with it ignored. Has both suites compile faster than users do."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr in LEVELS:
        os.environ.setdefault("HCCC_CXXFLAGS", LEVELS[config.option.markexpr])
    os.environ.setdefault("HCCC_PROGRESS", "off")  # or stderr depended on how fast the machine is
    os.environ.setdefault("HCCC_SECONDS", "600")  # and what is synthesized did
    # The device layer reads it once a process, in whichever test of a worker comes first.
    os.environ["HCCC_CPU_DEVICES"] = str(CPU_DEVICES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects all tests without Python's garbage collector, which would take half of the time and
    find nothing: what is made meanwhile stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Marks as slow the cases that `quick(n)` leaves out. Puts the longest tests first, or workers
    would wait for one of them at the end. Leaves out what is not of the `--part`."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    seen: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is None or item.get_closest_marker("slow"):
            continue
        test = item.nodeid.partition("[")[0]
        seen[test] = seen.get(test, 0) + 1
        if seen[test] > mark.args[0]:
            item.add_marker(pytest.mark.slow)
    yield
    k, n = config.option.part
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % n != k])
    items[:] = items[k::n]  # cases of one test are beside each other: each part has some


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells fixtures whether their test passed: a failed test leaves golden files out."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def golden_folder(test: str) -> Path:
    """Returns a test's folder of golden files: `test_ring[cuda]` → tests/golden/test_ring-cuda."""
    return GOLDEN / test.replace("[", "-").replace("]", "")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Returns an environment with the wheel; tests install nothing else there."""
    return shared(root_of(tmp_path_factory) / "installed")


@pytest.fixture
def flags_of_users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles with the options that users have; not in the quick suite."""
    if request.config.option.markexpr != "not slow":
        monkeypatch.delenv("HCCC_CXXFLAGS", raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """Yields `golden(stage, text)`: checks that text equals tests/golden/<test>/<stage>.txt.

    A missing file fails, and so does one in the test's folder that the test did not ask for.
    """
    folder = golden_folder(request.node.name)
    update = bool(request.config.getoption("--update-golden"))
    asked: set[Path] = set()

    def check(stage: str, text: str) -> None:
        path = folder / f"{stage}.txt"
        asked.add(path)
        _compare(path, text, update)

    yield check
    if not request.node.stash.get(_PASSED, False):
        return
    for path in sorted(set(folder.glob("*")) - asked):
        assert update, f"{path} belongs to no stage of its test: delete it"
        path.unlink()


@pytest.fixture
def generated(request: pytest.FixtureRequest) -> Callable[[str, str, str], None]:
    """Returns `generated(page, name, text)`: checks that text stands in docs/<page> between the
    lines `<!-- NAME: generated -->` and `<!-- end of NAME -->`; `--update-golden` writes it
    there."""
    update = bool(request.config.getoption("--update-golden"))

    def check(page: str, name: str, text: str) -> None:
        path = ROOT / "docs" / page
        whole = path.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: generated -->\n", f"<!-- end of {name} -->\n"
        assert whole.count(begin) == whole.count(end) == 1, f"{path} has no {begin} … {end}"
        before, rest = whole.split(begin)
        _compare(path, before + begin + text + end + rest.split(end)[1], update)

    return check


def _compare(path: Path, text: str, update: bool) -> None:
    if update and (not path.exists() or path.read_text(encoding="utf-8") != text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: {UPDATE}"
    assert text == path.read_text(encoding="utf-8"), f"{path} differs: {UPDATE}"
