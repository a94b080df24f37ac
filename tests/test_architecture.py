"""The architecture: imports point one way, files stay small, README tells the truth."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import click
import pytest

import hccc
from hccc.cli import main as cli
from tests.readme import console_lines

ROOT = Path(__file__).parent.parent
PACKAGE = Path(next(iter(hccc.__path__))).resolve()
RUNTIME = (PACKAGE / "runtime").resolve()
SOURCES = sorted(
    path
    for folder in (PACKAGE, RUNTIME)
    for path in folder.rglob("*.py")
    if folder is RUNTIME or RUNTIME not in path.resolve().parents
)

# What each room may import besides itself (docs/architecture.md); every room is here.
BELOW = {"diagnostics", "ir"}
ALLOWED: dict[str, set[str]] = {
    # What everybody may use.
    "codes": set(),
    "diagnostics": {"codes"},
    "dtypes": set(),
    "interruptible": set(),
    "jit": set(),
    "render": set(),
    "files": {"diagnostics"},
    "ir": {"diagnostics", "files"},
    "options": BELOW,
    "candidates": {"diagnostics"},
    "text": {"ir"},
    "library": {"diagnostics", "files"},
    "hardware": {"ir"},
    # Texts to IRs, IRs to IRs, and what is asked of them.
    "network": BELOW,
    "lang": BELOW | {"files", "hardware", "jit", "library", "network"},
    "analysis": BELOW | {"jit", "network"},
    "passes": BELOW | {"analysis", "jit", "network"},
    "proofs": BELOW | {"analysis", "interruptible", "jit"},
    "sim": BELOW | {"jit", "network"},
    "synth": BELOW | {"interruptible", "jit", "network", "sim"},
    "emit": BELOW | {"dtypes", "files", "render"},
    "interop": BELOW | {"analysis", "emit", "interruptible", "jit", "lang", "proofs"},
    "runtime": BELOW | {"dtypes", "files", "render"},
    "validate": BELOW | {"dtypes", "emit", "interruptible", "runtime"},
    "tune": BELOW | {"sim", "text"},
    # What joins them.
    "pass_manager": BELOW | {"options", "passes"},
    "structures": BELOW | {"pass_manager", "passes"},
    "driver": BELOW
    | {
        "analysis",
        "emit",
        "interruptible",
        "lang",
        "options",
        "pass_manager",
        "proofs",
        "structures",
        "tune",
        "validate",
    },
    "synthesis": BELOW | {"driver", "interruptible", "lang", "options", "passes", "synth", "text"},
    "synthesis_sizes": BELOW
    | {"interruptible", "lang", "options", "structures", "synth", "synthesis", "text", "tune"},
    "inputs": BELOW
    | {
        "analysis",
        "driver",
        "emit",
        "files",
        "hardware",
        "interop",
        "interruptible",
        "lang",
        "library",
        "options",
        "pass_manager",
        "proofs",
    },
    "outputs": BELOW
    | {
        "driver",
        "emit",
        "files",
        "inputs",
        "interop",
        "interruptible",
        "pass_manager",
        "proofs",
        "validate",
    },
    "facts": BELOW | {"driver", "proofs", "tune", "validate"},
    "launch": BELOW | {"driver", "emit", "files", "interruptible", "outputs", "runtime"},
    "predict": BELOW
    | {
        "candidates",
        "driver",
        "facts",
        "hardware",
        "inputs",
        "interop",
        "interruptible",
        "library",
        "network",
        "options",
        "pass_manager",
        "passes",
        "proofs",
        "sim",
        "synth",
        "text",
        "tune",
    },
    "pictures": BELOW
    | {
        "analysis",
        "driver",
        "facts",
        "files",
        "inputs",
        "interruptible",
        "lang",
        "library",
        "network",
        "options",
        "pass_manager",
        "predict",
        "render",
        "sim",
        "text",
    },
    "profile": BELOW | {"driver", "emit", "files", "lang", "launch", "options", "runtime"},
    "testing": BELOW
    | {
        "driver",
        "dtypes",
        "emit",
        "interop",
        "lang",
        "options",
        "pass_manager",
        "passes",
        "proofs",
        "runtime",
    },
    "given": BELOW | {"driver", "inputs", "options", "pass_manager", "predict"},
    "api": BELOW
    | {
        "driver",
        "given",
        "inputs",
        "options",
        "outputs",
        "pass_manager",
        "pictures",
        "predict",
        "proofs",
        "synthesis",
        "synthesis_sizes",
    },
    "downstream": BELOW | {"files"},
    "cli": BELOW
    | {
        "api",
        "downstream",
        "driver",
        "dtypes",
        "facts",
        "files",
        "inputs",
        "interop",
        "interruptible",
        "lang",
        "launch",
        "library",
        "network",
        "options",
        "outputs",
        "pass_manager",
        "passes",
        "pictures",
        "predict",
        "profile",
        "runtime",
        "sim",
        "structures",
        "synth",
        "synthesis",
        "synthesis_sizes",
        "testing",
        "text",
        "tune",
        "validate",
    },
    "__main__": {"cli"},
}
LONGEST = 400


def _part(path: Path) -> str:
    """`ir`, `lang`, …; `runtime`; or the name of one of compiler's own modules."""
    if RUNTIME in path.resolve().parents:
        return "runtime"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """The parts of hccc that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{module}.{a.name}" for a in node.names] if module == "hccc" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("hccc.")}
    return found


def _name(path: Path) -> str:
    return f"{_part(path)}-{path.stem}"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_imports_point_one_way(path: Path) -> None:
    part = _part(path)
    if part != "__init__":
        assert _imports(path) - {part, "__version__"} <= ALLOWED[part]


def test_the_walk_sees_every_part() -> None:
    assert set(ALLOWED) == {_part(path) for path in SOURCES} - {"__init__"}
    assert {"ir", "diagnostics"} <= _imports(PACKAGE / "lang" / "transfer" / "load.py")


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_files_stay_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    if not text:
        return
    assert len(text.splitlines()) <= LONGEST
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_loops_are_compiled_in_one_manner(path: Path) -> None:
    """`compiled` and its `loop_cache` ask numba: loops are kept, and let go of the interpreter."""
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    asks = any((name or "").split(".")[0] == "numba" for name in names)
    assert asks == (_part(path) == "jit" and path.stem != "__init__")


def test_readme_shows_commands() -> None:
    assert len(console_lines()) >= 5


@pytest.mark.parametrize("line", console_lines())
def test_readme_commands_exist(line: str) -> None:
    """Each hccc command parses, and each program that it names is there."""
    for command in line.split("&&"):
        words = shlex.split(command)
        if not words[0].endswith("hccc"):
            continue
        words = words[1:] if words[1] in cli.cli.commands else ["compile", *words[1:]]
        chosen = cli.cli.commands[words[0]]
        assert isinstance(chosen, click.Command)
        group = click.Context(cli.cli, **cli.cli.context_settings)  # -h, which commands remember
        given = chosen.make_context(words[0], words[1:], group).params
        program = Path(str(given.get("algorithm", "")))
        cluster = given.get("cluster")
        assert cluster in (None, Path("here.cluster")) or (ROOT / cluster).is_file()
        assert program.suffix not in (".rccl", ".xml") or (ROOT / program).is_file()
