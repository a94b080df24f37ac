"""Switches between stacks: by code for this processor, and by ucontext, for others."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.handwritten import INCLUDE, PROGRAMS

OWN_CODE = "#if defined(__x86_64__) || defined(__aarch64__)\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("own_code", [True, False])
def test_a_context_goes_on_where_it_was(own_code: bool, tmp_path: Path) -> None:
    header = (INCLUDE / "hccc" / "context.h").read_text()
    assert header.count(OWN_CODE) == 1
    (tmp_path / "context.h").write_text(header if own_code else header.replace(OWN_CODE, "#if 0\n"))
    library = tmp_path / "context.so"
    flags = [
        "-std=c++17",
        "-O2",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{tmp_path}",
    ]
    command = ["g++", *flags, str(PROGRAMS / "context.cpp"), "-o", str(library)]
    subprocess.run(command, check=True)
    sum_to = ctypes.CDLL(str(library)).sum_to
    sum_to.restype = ctypes.c_long
    for n in (1, 1000):
        assert sum_to(n) == n * (n + 1) // 2
