"""Directories of kernels from somebody else: nothing that was put there runs, whatever the command.

Each is an attack that once worked (issue 27): code in the place of what confines a run, headers
before the system's, libraries under the names of hccc's own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import UserError
from hccc.base.files.libraries import HASH, name_of
from hccc.runtime.communicator.kernels import built
from tests.cli.commandline import Hccc, hccc

__all__ = ["hccc"]
RING = Path(__file__).parents[2] / "examples" / "rhd_allreduce.rccl"
SHORT = ["-b", "1K", "-e", "1K", "-n", "1", "-w", "1"]
INTERPOSED = """
#include <fcntl.h>
#include <sys/syscall.h>
extern "C" long syscall(long, ...) noexcept;
extern "C" int open(const char* path, int flags, ...) {
  syscall(SYS_close, syscall(SYS_openat, -100, "CANARY", 0101, 0644));
  return (int)syscall(SYS_openat, -100, path, flags);
}
"""
PRCTL = """
#include <sys/syscall.h>
extern "C" long syscall(long, ...) noexcept;
extern "C" int prctl(int, ...) noexcept { return 0; }
__attribute__((constructor)) static void canary() { syscall(SYS_mkdirat, -100, "CANARY", 0755); }
"""
RESOLVER = """
static long raw(long n, long a, long b, long c, long d) {
  long r; register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return r;
}
extern "C" {
static int two() { return 2; }
__attribute__((used)) static int (*resolve(void))() {
  raw(3, raw(257, -100, (long)"CANARY", 0101, 0644), 0, 0, 0);
  return two;
}
int chosen() __attribute__((ifunc("resolve")));
}
__attribute__((used)) static int (*volatile use)() = chosen;
"""
CONSTRUCTOR = """
#include <stdio.h>
__attribute__((constructor)) static void canary() { fclose(fopen("CANARY", "w")); }
"""


@pytest.fixture
def place(hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a directory of kernels, and sets a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert hccc(RING, "-o", tmp_path / "k", "--tune", "off", "--target", "cpu")[0] == 0
    return tmp_path / "k"


def refused(hccc: Hccc, place: Path, named: str, *commands: str) -> None:
    """Asserts that the commands, all without any, refuse the directory and name what is wrong."""
    for command in commands or ("check", "run"):
        argv = SHORT if command == "run" else []
        code, _, told = hccc(command, place, *argv)
        assert code == 1 and "error[E428]" in told and named in told, (command, told)
    if not commands or "run" in commands:
        with pytest.raises(UserError, match="E428"):
            built(place, ["float32"], ["sum"])


@pytest.mark.parametrize("code", [INTERPOSED, PRCTL, RESOLVER], ids=["open", "prctl", "ifunc"])
def test_a_text_with_code_is_not_run(hccc: Hccc, place: Path, tmp_path: Path, code: str) -> None:
    canary = tmp_path / "canary"
    text = place / "rhd_allreduce_cpu.cpp"
    text.write_text(text.read_text() + code.replace("CANARY", str(canary)))
    refused(hccc, place, text.name)
    assert not canary.exists()


def test_a_text_that_differs_is_not_compiled(
    hccc: Hccc, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling it could take all memory: neither E428 nor a note about it needs a compiler."""
    text = place / "rhd_allreduce_cpu.cpp"
    text.write_text(text.read_text() + '#include "/dev/zero"\n')
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process starts"))
    refused(hccc, place, text.name)


def test_no_note_about_a_text_that_differs(hccc: Hccc, place: Path) -> None:
    """It moves another chunk as soon as it is compiled with -O3."""
    text = place / "rhd_allreduce_cpu.cpp"
    shift = "#ifdef __OPTIMIZE__\n#define SHIFT 1\n#else\n#define SHIFT 0\n#endif\n"
    body = text.read_text().replace("hccc_waits(", "hccc_waits(SHIFT + ", 1)
    text.write_text(
        body.replace('#include "hccc/device.h"\n', '#include "hccc/device.h"\n' + shift)
    )
    code, _, told = hccc("check", place)
    assert code == 1 and "E428" in told and "note:" not in told


@pytest.mark.parametrize("name", ["sched.h", "hccc/string.h", "rhd_allreduce_built.h"])
def test_a_header_that_shadows_another(hccc: Hccc, place: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    system = f"#pragma once\n#include_next <{Path(name).name}>\n"
    (place / name).write_text(system + CONSTRUCTOR.replace("CANARY", str(canary)))
    refused(hccc, place, name)
    assert not canary.exists()


def test_a_planted_library_is_not_loaded(hccc: Hccc, place: Path, tmp_path: Path) -> None:
    """It has the name that hccc gives to a library of these sources; `run` does not look there."""
    canary = tmp_path / "canary"
    assert hccc("run", place, *SHORT)[0] == 0
    (kept,) = tmp_path.rglob("rhd_allreduce_cpu-*.so")
    assert tmp_path / "cache" in kept.parents and not (place / "build").exists()
    source = tmp_path / "evil.cpp"
    source.write_text(CONSTRUCTOR.replace("CANARY", str(canary)))
    command = [find_compiler(), "-shared", "-fPIC", str(source), "-o", str(tmp_path / "evil.so")]
    subprocess.run(command, check=True)
    evil = (tmp_path / "evil.so").read_bytes()
    (place / "build").mkdir()
    stem = kept.name[: -HASH - len("-.so")]
    (place / "build" / name_of(stem, ".so", evil)).write_bytes(evil)
    assert hccc("run", place, *SHORT)[0] == 0
    assert not canary.exists()
    refused(hccc, place, "build", "check")


Plant = Callable[[Path], object]


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("README.md"),
        lambda path: path.mkdir(),
    ],
    ids=["device", "link", "folder"],
)
def test_the_plan_is_a_file(hccc: Hccc, place: Path, plant: Plant) -> None:
    """Commands that only read the plan read no link."""
    (place / "plan.json").unlink()
    plant(place / "plan.json")
    for command in ("check", "run", "sim", "explain"):
        code, _, told = hccc(command, place)
        assert code == 1 and re.search(r"error\[E401\].*plan\.json", told), (command, told)
