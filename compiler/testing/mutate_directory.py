"""mutate_directory: puts into a directory of kernels what somebody could put there to have it run.

Every text and library that is planted would leave a file, the canary, if it were compiled and run,
or loaded. Texts that only have to be compiled for it end in an error of the compiler.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hccc.ir.names import PLAN_FILE
from hccc.testing.mutate_plan import Choose, PlanData, mutate_plan

Item = TypeVar("Item")
_SHADOWED = (
    *("sched.h", "string.h", "stdint.h", "time.h", "pthread.h", "stddef.h", "new", "atomic"),
    *("bits/types.h", "hccc.h", "cuda_runtime.h", "hip/hip_runtime.h", "nvrtc.h"),
)
_SOURCES = (
    *("more.cpp", "more.cu", "conftest.py", "sitecustomize.py", "numpy.py", "hccc.py", "Makefile"),
    *("CMakeLists.cmake", "CMakePresets.json", ".hidden", "plan.json~", "plan.py", "a b\nc.h"),
)
_TOKEN = re.compile(rb"[A-Za-z_]\w*|\d+|##|[^\w\s]")
_TOKENS = (
    *(b"#", b"##", b"%:", b"\\\n", b"__OPTIMIZE__", b"asm", b"volatile", b"static", b"goto"),
    *(b'extern "C"', b"#if 1\n", b"#include_next", b"_Pragma", b"0", b"HCCC_DTYPE", b'R"(', b"/*"),
    *(b"*/", b"//", b"{", b"}", b";", b"\0", b"\xff", b"\r\n"),
)
_JSON = (b"[" * 100_000, b"{" * 1000, b"\xef\xbb\xbf", b"NaN", b"1e999", b'"x":1,', b"9" * 5000)


@dataclass(frozen=True, slots=True)
class Attack:
    """What a directory is attacked with.

    files: what hccc wrote there, by name; plan: the data of its plan; others: texts of other plans
    with the same name. canary: the file that planted code would make; library: a shared library
    that makes it when it is loaded, and built: names that hccc gives to libraries of these files.
    elsewhere: a folder outside with a copy of all files.
    """

    name: str
    files: Mapping[str, bytes]
    plan: PlanData
    others: tuple[bytes, ...]
    canary: Path
    library: bytes
    built: tuple[str, ...]
    elsewhere: Path

    @property
    def code(self) -> bytes:
        """C++ that makes the canary before `main`, or when its library is loaded."""
        made = json.dumps(str(self.canary))
        return (
            "\n#include <stdio.h>\n"
            f'__attribute__((constructor)) static void canary() {{ fopen({made}, "w"); }}\n'
        ).encode()


Change = Callable[[Path, Attack, Choose], None]


def mutate_directory(place: Path, attack: Attack, choose: Choose) -> str:
    """Changes the directory not at all, once or twice; returns how: `nothing`, or a
    key of `CHANGES` or two."""
    if choose(15) == 0:
        return "nothing"
    names = list(dict.fromkeys(_one(tuple(CHANGES), choose) for _ in range(1 + (choose(3) == 0))))
    for name in names:
        CHANGES[name](place, attack, choose)
    return " and ".join(names)


def _one(items: Sequence[Item], choose: Choose) -> Item:
    return items[choose(len(items) - 1)]


def _put(path: Path, body: bytes) -> None:
    """Writes a file in the place of whatever is there; nothing where a file is in its way."""
    _take(path)
    if all(parent.is_dir() for parent in path.parents if parent.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def _take(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _header(place: Path, attack: Attack, choose: Choose) -> None:
    """Adds a header that a compiler would find before its own."""
    name = _one([*_SHADOWED, f"{attack.name}_built.h"], choose)
    folder = ("", "hccc/")[choose(1)]
    after = (b"", b"#include_next <" + name.encode() + b">\n")[choose(1)]
    _put(place / f"{folder}{name}", b"#pragma once\n" + after + attack.code)


def _source(place: Path, attack: Attack, choose: Choose) -> None:
    """Adds a source, or what a tool would run."""
    more = [f"{attack.name}_2_cpu.cpp", f"{attack.name}_cpu.cc", f"{attack.name}_dispatch.cpp"]
    python = f"open({str(attack.canary)!r}, 'w')\n".encode()
    name = _one([*_SOURCES, *more], choose)
    _put(place / name, python if name.endswith(".py") else attack.code)


def _build(place: Path, attack: Attack, choose: Choose) -> None:
    """Leaves a folder as a build does, with libraries of names that hccc would look for."""
    folder = place / _one(["build", "build", "hccc/build", "out", "CMakeFiles"], choose)
    for name in attack.built:
        _put(folder / name, attack.library)
    _put(folder / "CMakeCache.txt", f"CMAKE_CXX_COMPILER:FILEPATH={place}/evil\n".encode())
    _put(folder / f"{attack.name}_built.h", attack.code)
    if choose(1):
        _put(folder / "sched.h", attack.code)


def _library(place: Path, attack: Attack, choose: Choose) -> None:
    """Adds a shared library beside the sources."""
    names = [*attack.built, f"lib{attack.name}.so", "libc.so.6", "hccc/libstdc++.so.6"]
    _put(place / _one(names, choose), attack.library)


def _link(place: Path, attack: Attack, choose: Choose) -> None:
    """Puts a link in the place of a file, or beside it: to the same text, a device, nowhere."""
    name = _one(sorted(attack.files), choose)
    to = _one([str(attack.elsewhere / name), "/dev/zero", "/no/where", name, "/etc/passwd"], choose)
    path = place / (name if choose(2) else f"{name}.h")
    if path.parent.is_dir():
        _take(path)
        path.symlink_to(to)


def _folder_link(place: Path, attack: Attack, choose: Choose) -> None:
    """Puts a link in the place of a folder, or of `build/`."""
    path = place / _one(["hccc", "build", "bits"], choose)
    _take(path)
    path.symlink_to(_one([str(attack.elsewhere / "hccc"), "/", ".", str(place)], choose))


def _special(place: Path, attack: Attack, choose: Choose) -> None:
    """Puts a pipe that nobody writes to, or a folder, in the place of a file or beside it."""
    path = place / _one([*sorted(attack.files), "pipe", "hccc/pipe.h"], choose)
    if path.parent.is_dir():
        _take(path)
        os.mkfifo(path) if choose(1) else path.mkdir()


def _text_of(place: Path, attack: Attack, choose: Choose) -> tuple[Path, bytes]:
    name = _one(sorted(attack.files.keys() - {PLAN_FILE}), choose)
    return place / name, attack.files[name]


def _line(place: Path, attack: Attack, choose: Choose) -> None:
    """Adds code to a text, at its end or at any line."""
    path, body = _text_of(place, attack, choose)
    at = len(body) if choose(1) else body.find(b"\n", choose(len(body) - 1)) + 1
    more = _one([attack.code, b'#error "canary"\n', b'#include "canary"\n', b"\n"], choose)
    _put(path, body[:at] + more + body[at:])


def _token(place: Path, attack: Attack, choose: Choose) -> None:
    """Changes, adds or removes a token of a text."""
    path, body = _text_of(place, attack, choose)
    found = list(_TOKEN.finditer(body))
    token, other = _one(found, choose), _one(found, choose)
    new = _one([b"", other[0], _one(_TOKENS, choose), token[0] + b" " + other[0]], choose)
    _put(path, body[: token.start()] + new + body[token.end() :])


def _byte(place: Path, attack: Attack, choose: Choose) -> None:
    """Changes one byte of a text, or cuts it."""
    path, body = _text_of(place, attack, choose)
    at = choose(len(body) - 1)
    _put(path, body[:at] + (bytes([choose(255)]) + body[at + 1 :] if choose(2) else b""))


def _removed(place: Path, attack: Attack, choose: Choose) -> None:
    """Removes a file."""
    _take(place / _one(sorted(attack.files), choose))


def _swapped(place: Path, attack: Attack, choose: Choose) -> None:
    """Exchanges two files."""
    names = sorted(attack.files)
    a, b = _one(names, choose), _one(names, choose)
    _put(place / a, attack.files[b])
    _put(place / b, attack.files[a])


def _plan(place: Path, attack: Attack, choose: Choose) -> None:
    """Changes a field of the plan, or takes another plan."""
    body = json.dumps(mutate_plan(attack.plan, choose)[0]).encode()
    _put(place / PLAN_FILE, body if choose(4) else _one(attack.others, choose))


def _plan_text(place: Path, attack: Attack, choose: Choose) -> None:
    """Writes the plan in another way, or breaks its JSON."""
    body = attack.files[PLAN_FILE]
    at = choose(len(body) - 1)
    made = [
        json.dumps(attack.plan, indent=choose(3)).encode(),
        body[:at],
        body[:at] + _one(_JSON, choose) + body[at:],
        body[:at] + bytes([choose(255)]) + body[at + 1 :],
        body.replace(b": [", b": [0,", 1),
    ]
    _put(place / PLAN_FILE, _one(made, choose))


CHANGES: dict[str, Change] = {
    "header": _header,
    "source": _source,
    "build": _build,
    "library": _library,
    "link": _link,
    "folder link": _folder_link,
    "special": _special,
    "line": _line,
    "token": _token,
    "byte": _byte,
    "removed": _removed,
    "swapped": _swapped,
    "plan": _plan,
    "plan text": _plan_text,
}
