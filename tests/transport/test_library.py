"""The choice of a UCX library, and the error without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import UserError
from hccc.runtime.transport.ucx_transport import UcxTransport, available

ASK = "from hccc.runtime.transport.ucx_transport import available; print(*available())"
OLD = (
    'extern "C" void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)'
    " { *a = 1, *b = 5, *c = 2; }"
)


def asked(library: Path) -> str:
    """Returns the output of a process whose HCCC_UCX_LIBRARY is `library`."""
    environment = {**os.environ, "HCCC_UCX_LIBRARY": str(library)}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_which_one_is_found(ucx: None) -> None:
    usable, text = available()
    assert usable
    assert text.startswith("UCX 1.")


def test_none(tmp_path: Path) -> None:
    said = asked(tmp_path / "libucp.so.0")
    assert said.startswith("False UCX was not found: $HCCC_UCX_LIBRARY: ")
    assert "apt-get install libucx0" in said


def test_one_that_is_too_old(tmp_path: Path) -> None:
    source, library = tmp_path / "old.cpp", tmp_path / "libucp.so.0"
    source.write_text(OLD)
    subprocess.run(
        [find_compiler(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    assert " is UCX 1.5.2, and 1.12 or a later 1.x is needed" in asked(library)


def test_a_network_that_is_not_there(ucx: None) -> None:
    ends = [UcxTransport(rank, 2, network="nosuch0") for rank in range(2)]
    with pytest.raises(UserError, match="cannot reach rank 1 over `nosuch0`"):
        ends[0].connect(1, ends[1].blob())
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rank": 2}, "there is no rank 2 of 2"),
        ({"slice_bytes": 5}, "HCCC_SLICE_BYTES"),
        ({"slice_bytes": 8192, "pool_bytes": 8192}, "HCCC_POOL_BYTES"),
    ],
)
def test_options_are_refused(ucx: None, options: dict[str, int], why: str) -> None:
    given = {"rank": 0, "n_ranks": 2, **options}
    with pytest.raises(UserError, match=why):
        UcxTransport(**given)  # type: ignore[arg-type]
