"""A library in the vendor's place, compiled once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hccc.runtime.nccl.library import HERE


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compiles a library with NCCL's names."""
    made = tmp_path_factory.mktemp("vendor") / "libvendor.so"
    source = Path(__file__).parent / "vendor.c"
    words = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{HERE / 'include'}", str(source)]
    subprocess.run([*words, "-o", str(made)], check=True)
    return str(made)
