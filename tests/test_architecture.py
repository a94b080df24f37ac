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
    # Texts to IRs, IRs to IRs, and analyses of them.
    "shipped": {"base", "ir"},
    "network": {"ir"},
    "lang": {"base", "ir", "network", "shipped"},
    "analysis": {"base", "ir", "network"},
    "passes": {"analysis", "base", "ir", "network"},
    "proofs": {"analysis", "base", "ir"},
    "sim": {"base", "ir", "network"},
    "emit": {"base", "ir"},
    "interop": {"analysis", "base", "emit", "ir", "lang", "proofs"},
    "runtime": {"base", "emit", "ir"},
    "validate": {"base", "emit", "ir", "runtime"},
    # What joins them.
    "driver": {
        *("analysis", "base", "emit", "interop", "ir", "lang", "network", "passes", "proofs"),
        *("shipped", "sim", "validate"),
    },
    "synth": {"base", "driver", "ir", "lang", "network", "passes", "sim"},
    "torch": {"runtime", "synth"},
    "launch": {"base", "driver", "emit", "ir", "runtime"},
    "predict": {
        *("base", "driver", "interop", "ir", "network", "passes", "proofs", "shipped", "sim"),
        "synth",
    },
    "pictures": {"analysis", "base", "driver", "ir", "lang", "network", "predict", "sim"},
    "standard": {"base", "driver", "emit", "ir", "passes", "proofs", "runtime", "synth"},
    "profile": {"base", "driver", "emit", "ir", "lang", "launch", "runtime", "sim"},
    "testing": {
        *("base", "driver", "emit", "interop", "ir", "lang", "passes", "predict", "proofs"),
        *("runtime", "synth"),
    },
    "downstream": {"base", "ir"},
    "api": {"base", "driver", "ir", "launch", "pictures", "predict", "proofs", "synth"},
    "editors": {
        *("analysis", "api", "base", "driver", "ir", "lang", "passes", "pictures", "predict"),
        *("shipped", "sim"),
    },
    "cli": {
        *("api", "base", "downstream", "driver", "editors", "interop", "ir", "lang", "launch"),
        "network",
        *("passes", "pictures", "predict", "profile", "runtime", "shipped", "sim", "standard"),
        *("synth", "testing", "validate"),
    },
    "__main__": {"cli"},
}
# What each family of engines in `synth` may import of the others, all above it in this list. The
# loose modules of `synth` join the families; no family imports them. `predict` and `cli` ask
# `bounds` and `builtin`, which import no engines.
FAMILIES: dict[str, set[str]] = {
    "bounds": set(),
    "common": set(),
    "builtin": {"common"},
    "trees": {"bounds", "common"},
    "paths": {"bounds", "common"},
    "greedy": {"common"},
    "pods": {"common", "greedy"},
    "cegis": {"common", "greedy"},
    "sketches": {"bounds", "common"},
}
# Engines know no driver: `synth/synthesize` compiles their Programs.
COMPILING = {"synthesize"}


def _part(path: Path) -> str:
    """Returns a file's part: `ir`, `lang`, …; `runtime`; or a name of compiler's own modules."""
    if RUNTIME in path.resolve().parents:
        return "runtime"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path, within: str = "hccc") -> set[str]:
    """Returns the parts of hccc, or of the package `within`, that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{module}.{a.name}" for a in node.names] if module == within else [module]
        begin = within + "."
        found |= {name[len(begin) :].split(".")[0] for name in names if name.startswith(begin)}
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


def test_families_of_synthesis_import_one_way() -> None:
    families, room = list(FAMILIES), PACKAGE / "synth"
    assert set(families) == {path.parent.name for path in room.rglob("*/__init__.py")}
    for family, allowed in FAMILIES.items():
        assert all(families.index(other) < families.index(family) for other in allowed), family
        imported = {
            other
            for path in (room / family).rglob("*.py")
            for other in _imports(path, "hccc.synth") - {family}
        }
        assert imported == allowed, family
    assert "bounds" in _imports(room / "candidates.py", "hccc.synth")


def test_engines_of_synthesis_compile_nothing() -> None:
    engines = [p for p in SOURCES if _part(p) == "synth" and p.stem not in COMPILING]
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
