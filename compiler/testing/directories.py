"""directories: attacks directories of kernels (`hccc fuzz --directories`).

One directory is changed again and again (`mutate_directory`), and given to the functions that
`hccc check`, `hccc run` and communicators call. The laws:

- nothing of the directory runs: planted code would leave a file, no compiler and no loader is given
  a path in it, and what is built is what the plan emits;
- it is accepted exactly if its files are those that its plan emits. `run` compares only what its
  target is compiled of, and does not mind `build/`, which it never reads;
- whatever it is refused for is an error of the user's, never one of hccc's.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hccc.base.building.compiler import find_compiler, run_compiler
from hccc.base.diagnostics import Source, UserError
from hccc.base.files.libraries import HASH, name_of
from hccc.base.progress import quiet
from hccc.driver import outputs
from hccc.driver.compilation import compile_program
from hccc.driver.inputs import opened
from hccc.driver.load import load
from hccc.driver.options import Options
from hccc.emit import directory
from hccc.emit.compare import compare
from hccc.emit.kept import kept_kernels
from hccc.emit.targets import CPU, TARGETS
from hccc.ir import catalogue_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.names import PLAN_FILE
from hccc.ir.program import Program
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.proofs.prove import check_plan
from hccc.runtime.build import Variant, build_library
from hccc.runtime.communicator.kernels import built
from hccc.testing.mutate_directory import Attack, mutate_directory
from hccc.testing.mutate_plan import Choose

ACCEPTED = "accepted"
# What a directory may be refused for: a file that cannot be read, a plan that is none or is not
# proved, files that are not what it emits. No compiler fails, and nothing stops.
REFUSALS = frozenset({"E401", "E402", "E404", "E406", "E407", "E427", "E428", "E473"})
PLANS = ("E30", "E31")
_EVENTS = frozenset(
    {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "ctypes.dlopen", "import"}
)
_SMALL = """\
ResCCLAlgo(nRanks=3, OpType="Allgather", AlgoName="three"):
    for r in range(3):
        transfer(r, (r + 1) % 3, 0, r, recv)
        transfer((r + 1) % 3, (r + 2) % 3, 1, r, recv)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one directory: how it was changed, and what `check` and `run` said: `accepted`,
    or the code of the error."""

    change: str
    check: str
    run: str


@dataclass(slots=True)
class DirectoryTally:
    """The directories tried so far, by what came of them.

    finding: how one broke a law, "" where none did; seed: of the last one.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    finding: str = ""
    seed: int = 0

    @property
    def examples(self) -> int:
        """The number of directories."""
        return self.outcomes.total()

    def by_change(self) -> dict[str, tuple[int, int, int]]:
        """Returns for each kind of change how many directories had it, and how many of them `check`
        and `run` accepted."""
        found: dict[str, Counter[str]] = {}
        for one, n in self.outcomes.items():
            for change in one.change.split(" and "):
                counts = found.setdefault(change, Counter())
                counts["all"] += n
                counts["check"] += n * (one.check == ACCEPTED)
                counts["run"] += n * (one.run == ACCEPTED)
        return {c: (n["all"], n["check"], n["run"]) for c, n in sorted(found.items())}


def attack_directories(
    program: Program | None,
    *,
    examples: int | None,
    seconds: float | None,
    seed: int,
    on_example: Callable[[DirectoryTally], None],
) -> DirectoryTally:
    """Changes the directory of a program (None: a small one) at random, until one breaks a law.

    Ends after `examples` directories or `seconds`. Directory k of seed s is the first of seed s +
    k.

    Raises:
        UserError: E412 there is no C++ compiler; what compiling the program raises.
    """
    tally, end = DirectoryTally(), time.monotonic() + (seconds or float("inf"))
    with tempfile.TemporaryDirectory(prefix="hccc-") as folder, _cache_in(Path(folder) / "cache"):
        attacked = _Attacked(Path(folder).resolve(), program)
        while (examples is None or tally.examples < examples) and time.monotonic() < end:
            tally.seed = seed + tally.examples
            try:
                with quiet():
                    outcome = attacked.attempt(_from(Random(tally.seed)))
                tally.outcomes[outcome] += 1
            except Exception as error:  # anything at all breaks a law, so it is reported
                tally.finding = f"{type(error).__name__}: {error}"
                return tally
            on_example(tally)
    return tally


@contextmanager
def _cache_in(place: Path) -> Iterator[None]:
    """Keeps what is built elsewhere than in this user's cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


def _from(rng: Random) -> Choose:
    return lambda n: rng.randrange(n + 1) if n > 0 else 0


class _Attacked:
    """A directory, whole before each attempt."""

    def __init__(self, folder: Path, program: Program | None) -> None:
        program = program or transfer.parse(Source("three", _SMALL))
        catalogue, *others = (
            compile_program(program, Options(tune="off", transport=transport)).catalogue
            for transport in (Transport.AUTO, Transport.STAGED)
        )
        made = directory.files(catalogue, TARGETS, catalogue_json.dumps(catalogue))
        self._files = {name: text.encode() for name, text in made.items()}
        self._place = folder / "kernels"
        self._checked: set[int] = set()  # hashes of texts that were validated
        self._libraries: dict[Path, tuple[Path, ...]] = {}  # by the folder where kernels are kept
        self._watch = _Watch(self._place)
        directory.write(self._place, made)
        self._known = self._seen()
        self._attack = self._attack_of(catalogue, others, folder, made)

    def _attack_of(
        self,
        catalogue: Catalogue,
        others: Sequence[Catalogue],
        folder: Path,
        made: Mapping[str, str],
    ) -> Attack:
        canary, elsewhere = folder / "canary", folder / "elsewhere"
        directory.write(elsewhere, made)
        place = kept_kernels(self._place, catalogue, [CPU])
        self._source = f"{catalogue.name}_cpu.cpp"
        self._libraries[place] = self._built(place)
        library = _loaded_leaves(canary, folder)
        stems = [path.name[: -HASH - len("-.so")] for path in (place / "build").glob("*.so")]
        return Attack(
            catalogue.name,
            self._files,
            json.loads(made[PLAN_FILE]),
            tuple(catalogue_json.dumps(other).encode() for other in others),
            canary,
            library,
            tuple(name_of(stem, ".so", library) for stem in stems),
            elsewhere,
        )

    def attempt(self, choose: Choose) -> Outcome:
        """Changes the directory, has it checked and run, and puts it right again."""
        change = mutate_directory(self._place, self._attack, choose)
        try:
            with self._watch.watching():
                outcome = Outcome(change, _told(self._check), _told(self._run))
            assert not self._attack.canary.exists(), f"{change}: planted code has run"
            self._judge(outcome)
            return outcome
        finally:
            self._restore()

    def _check(self) -> None:
        """Does what `hccc check` does."""
        loaded = load(opened(self._place))
        _, made = compare(self._place, loaded.catalogue)
        if (key := hash(tuple(sorted(made.items())))) not in self._checked:
            outputs.compared(loaded)
            self._checked.add(key)

    def _run(self) -> None:
        """Does what `hccc run` and a communicator's `load` do. Kernels of another plan are not
        compiled, which takes a second."""
        loaded = load(opened(self._place))
        place = kept_kernels(self._place, loaded.catalogue, [CPU])
        assert self._place not in place.parents
        made = directory.files(loaded.catalogue, [CPU], catalogue_json.dumps(loaded.catalogue))
        for name, text in made.items():
            assert (place / name).read_text() == text, f"{name} is not what the plan emits"
        if place in self._libraries:
            assert built(self._place, ["float32"], ["sum"]).parents[1] == place
            assert self._built(place) == self._libraries[place]

    def _built(self, place: Path) -> tuple[Path, ...]:
        """Builds and loads the libraries of kernels that were kept, as `run` does with one plan,
        and as communicators do."""
        alone = build_library(place / self._source, Variant("float32", "sum"))
        libraries = (alone, built(place, ["float32"], ["sum"]))
        for library in libraries:
            ctypes.CDLL(str(library))
        return libraries

    def _judge(self, outcome: Outcome) -> None:
        """Raises AssertionError for a verdict that an independent reading does not have."""
        for told in (outcome.check, outcome.run):
            known = told in REFUSALS or told.startswith(PLANS) or told == ACCEPTED
            assert known, f"{outcome.change}: {told}"
        wanted = self._wanted()
        whole = wanted is not None and self._held() == wanted
        assert (outcome.check == ACCEPTED) == whole, f"{outcome}: the files are all right: {whole}"
        if whole:
            assert outcome.run == ACCEPTED, f"{outcome}: only `check` accepts it"

    def _wanted(self) -> dict[str, bytes] | None:
        """Returns what the plan of the directory emits, and the plan as it is; None without a
        right plan."""
        path = self._place / PLAN_FILE
        if path.is_symlink() or not path.is_file():
            return None
        try:
            catalogue = catalogue_json.loads(path.read_text(encoding="utf-8-sig"))
            for plan in catalogue.plans:
                check_plan(plan)
        except (UserError, UnicodeDecodeError):
            return None
        made = directory.files(catalogue, TARGETS)
        return {name: text.encode() for name, text in made.items()} | {PLAN_FILE: path.read_bytes()}

    def _held(self) -> dict[str, bytes] | None:
        """Returns the files of the directory; None if there is anything else in it."""
        found: dict[str, bytes] = {}
        for path in self._place.rglob("*"):
            name, mode = path.relative_to(self._place).as_posix(), path.lstat().st_mode
            if stat.S_ISREG(mode):
                found[name] = path.read_bytes()
            elif not (stat.S_ISDIR(mode) and name == "hccc"):
                return None
        return found

    def _seen(self) -> dict[str, os.stat_result]:
        """Returns every entry that is no folder of headers, with its state."""
        found = {}
        for folder in (self._place, self._place / "hccc"):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    state = entry.stat(follow_symlinks=False)
                    if entry.name != "hccc" or not entry.is_dir(follow_symlinks=False):
                        found[os.path.relpath(entry.path, self._place)] = state
        return found

    def _restore(self) -> None:
        """Puts every file back as it was."""
        if (self._place / "hccc").is_symlink():
            (self._place / "hccc").unlink()
        for name, state in self._seen().items():
            if not _same(self._known.get(name), state):
                path = self._place / name
                path.unlink() if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)
        now = self._seen()
        for name in self._files.keys() - now.keys():
            path = self._place / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self._files[name])
            self._known[name] = path.lstat()


def _same(before: os.stat_result | None, now: os.stat_result) -> bool:
    return before is not None and all(
        getattr(before, key) == getattr(now, key)
        for key in ("st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns")
    )


def _told(work: Callable[[], None]) -> str:
    """Returns `accepted`, or the code of the error."""
    try:
        work()
    except UserError as error:
        return error.problem.code
    return ACCEPTED


class _Watch:
    """Sees what this process starts, loads and imports, and raises for a path in the directory.

    Hooks of Python's cannot be taken away again, so it does nothing but while it watches.
    """

    def __init__(self, place: Path) -> None:
        self._path, self._on = str(place), False
        sys.addaudithook(self._heard)

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._on and event in _EVENTS and self._path in repr(arguments):
            raise AssertionError(f"{event} is given a path in the directory: {arguments}")


def _loaded_leaves(canary: Path, folder: Path) -> bytes:
    """Builds a shared library that makes the file `canary` when it is loaded."""
    source, library = folder / "canary.cpp", folder / "canary.so"
    code = f'__attribute__((constructor)) static void made() {{ fopen("{canary}", "w"); }}\n'
    source.write_text("#include <stdio.h>\n" + code)
    run_compiler(source, [find_compiler(), "-shared", "-fPIC", str(source), "-o", str(library)])
    return library.read_bytes()
