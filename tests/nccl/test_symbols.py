"""libnccl.so.2 has every function that clients of NCCL name, and docs/nccl.md says what of it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from hccc.runtime.nccl.library import NAMES, folder
from tests.docs.pages import DOCS

LIST = Path(__file__).parent / "symbols.txt"
TABLE = re.compile(r"<!-- functions -->(.*)<!-- end -->", re.S)


def clients() -> Mapping[str, set[str]]:
    """Returns the names of each client's, as scripts/nccl_symbols wrote them."""
    _, *parts = LIST.read_text(encoding="utf-8").split("\n\n")
    found = {}
    for part in parts:
        client, _, names = part.partition(":\n")
        found[client.split()[0]] = set(names.split())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    named = clients()
    assert {"nvidia_nccl_cu13", "torch", "cupy_cuda12x", "nccl4py", "nccl-tests", "rccl"} == set(
        named
    )
    assert all(len(names) > 20 for names in named.values())
    library = ctypes.CDLL(str(folder() / name))
    assert not [one for one in set.union(*named.values()) if not hasattr(library, one)]


def test_profilers_names_are_there() -> None:
    library = ctypes.CDLL(str(folder() / NAMES[0]))
    assert not [one for one in clients()["torch"] if not hasattr(library, f"p{one}")]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_finds_it_by_its_name(name: str) -> None:
    assert f"\0{name}\0".encode() in (folder() / name).read_bytes()


def test_the_page_names_every_function() -> None:
    (table,) = TABLE.findall((DOCS / "nccl.md").read_text(encoding="utf-8"))
    on_page = set(re.findall(r"`((?:nccl|msccl)\w+)`", table))
    assert on_page == set.union(*clients().values())
