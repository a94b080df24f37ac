"""The architecture: imports point one way, README tells the truth."""

from __future__ import annotations

import ast
from pathlib import Path

import hccc

ROOT = Path(__file__).parent.parent
PACKAGE = Path(next(iter(hccc.__path__))).resolve()
RUNTIME = (PACKAGE / "runtime").resolve()
SOURCES = sorted(
    path
    for folder in (PACKAGE, RUNTIME)
    for path in folder.rglob("*.py")
    if folder is RUNTIME or RUNTIME not in path.resolve().parents
)

# What each room may import besides itself (docs/architecture.md); every room is here, and a room
# may import only rooms above it in this list.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "ir": {"base"},
    # Texts to IRs, IRs to IRs, and what is asked of them.
    "shipped": {"base", "ir"},
    "network": {"ir"},
    "lang": {"base", "ir", "network", "shipped"},
    "analysis": {"base", "ir", "network"},
    "passes": {"analysis", "base", "ir", "network"},
    "proofs": {"analysis", "base", "ir"},
    "sim": {"base", "ir", "network"},
    "emit": {"base", "ir"},
    "interop": {"analysis", "base", "emit", "ir", "lang", "proofs"},
    "runtime": {"base", "ir"},
    "validate": {"base", "emit", "ir", "runtime"},
    # What joins them.
    "driver": {
        *("analysis", "base", "emit", "interop", "ir", "lang", "passes", "proofs", "shipped"),
        *("sim", "validate"),
    },
    "synth": {"base", "driver", "ir", "lang", "network", "passes", "sim"},
    "launch": {"base", "driver", "emit", "ir", "runtime"},
    "predict": {
        *("base", "driver", "interop", "ir", "network", "passes", "proofs", "shipped", "sim"),
        "synth",
    },
    "pictures": {"analysis", "base", "driver", "ir", "lang", "network", "predict", "sim"},
    "profile": {"base", "driver", "emit", "ir", "lang", "launch", "runtime"},
    "testing": {
        *("base", "driver", "emit", "interop", "ir", "lang", "passes", "proofs", "runtime"),
    },
    "downstream": {"base", "ir"},
    "api": {"base", "driver", "ir", "pictures", "predict", "proofs", "synth"},
    "cli": {
        *("api", "base", "downstream", "driver", "interop", "ir", "lang", "launch", "network"),
        *("passes", "pictures", "predict", "profile", "runtime", "shipped", "sim", "synth"),
        *("testing", "validate"),
    },
    "__main__": {"cli"},
}
# Engines of synthesis know no driver: whoever weighs their Programs compiles them.
WEIGHING = {"synthesis", "sizes", "weighed"}


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


def test_imports_point_one_way() -> None:
    rooms = list(ALLOWED)
    for room, allowed in ALLOWED.items():
        assert all(rooms.index(other) < rooms.index(room) for other in allowed), room
    wrong = [
        f"{path} imports {', '.join(sorted(more))}"
        for path in SOURCES
        if _part(path) != "__init__"
        and (more := _imports(path) - {_part(path)} - ALLOWED[_part(path)])
    ]
    assert not wrong


def test_every_room_has_its_line() -> None:
    assert set(ALLOWED) == {_part(path) for path in SOURCES} - {"__init__"}
    assert {"ir", "base"} <= _imports(PACKAGE / "lang" / "transfer" / "load.py")


def test_engines_of_synthesis_compile_nothing() -> None:
    engines = [p for p in SOURCES if _part(p) == "synth" and p.stem not in WEIGHING]
    assert engines
    assert not [path for path in engines if "driver" in _imports(path)]


def test_files_say_what_they_are() -> None:
    texts = {path: path.read_text() for path in SOURCES}
    assert not [p for p, text in texts.items() if text and not ast.get_docstring(ast.parse(text))]


def test_numba_is_asked_in_one_place() -> None:
    """`base/jit` asks numba: loops are kept on disk, and let go of the interpreter's lock."""
    asking = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                of = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names = of or [alias.name for alias in node.names]
                if any(name.split(".")[0] == "numba" for name in names):
                    asking.add(path.parent)
    assert asking == {PACKAGE / "base" / "jit"}
