"""A script that stands for the remote shell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import benchmarks.namespaces as namespaces
from hccc.base.building.places import user_directory
from hccc.runtime.communicator import runtime_library
from hccc.runtime.transport.ucx_transport import available
from tests.cli.commandline import environment

SHELL = """#!/bin/sh
host=$1; shift
case $host in
down) echo "ssh: connect to host down port 22: No route to host" >&2; exit 255;;
bare) shift; exec /no/python "$@";;
old) shift; echo Welcome; exec "$0.old";;
garbage) printf '\\nhccc speaks\\n[]\\n'; exec sleep 60;;
chatty) echo "Welcome to chatty"; HCCC_HOST_ID=$host exec "$@";;
node*) HCCC_HOST_ID=$host exec "$@";;
hccc-*) exec ip netns exec "$host" "$@";;
*) exec "$@";;
esac
"""
OLD = """#!/bin/sh
printf '\\nhccc speaks\\n{"version":"0.0.1","protocol":1}\\n'
exec cat >/dev/null
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shell") / "rsh"
    for path, text in ((place, SHELL), (place.with_name("rsh.old"), OLD)):
        path.write_text(text)
        path.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a cache with the runtime, which all tests share, and without kernels."""
    place = tmp_path_factory.mktemp("cache")
    runtime_library.build()
    built = user_directory("built")  # while another worker compiles, with the files it is writing
    unfinished = shutil.ignore_patterns(".*")
    shutil.copytree(built, place / "hccc" / "built", ignore=unfinished)
    return place


@pytest.fixture
def remote_shell(shell: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCC_RSH", str(shell))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture
def network() -> None:
    """Skips where there are no namespaces, or no UCX."""
    usable, why = available()
    if why := namespaces.missing() or ("" if usable else why):
        pytest.skip(why)
