"""Small texts and their plans, and the host compiler."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest

from hccc.base.building.compiler import COMPILERS
from hccc.driver.outputs import kernels
from hccc.emit.targets import TARGETS, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.validate import vocabulary

CPU, CUDA, HIP = TARGETS
TRANSPORTS = (Transport.DIRECT, Transport.STAGED, Transport.AUTO)
Files = Mapping[str, bytes]


@pytest.fixture(autouse=True, scope="session")
def compiler() -> None:
    """Skips without a host compiler: everything here needs one."""
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip("no C++ compiler")


@pytest.fixture
def any_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets texts have any words: the recorder and the confinement are what is tested."""
    monkeypatch.setattr(vocabulary, "check", lambda *_: None)


def emitted(plan: Plan, *targets: Target) -> dict[str, bytes]:
    """Returns the files of the directory of `plan`, by name."""
    return {
        name: text.encode()
        for name, text in kernels(Catalogue.of(plan), targets or TARGETS).items()
    }


def edited(files: Files, name: str, old: str, new: str) -> dict[str, bytes]:
    """Replaces the first `old` in one of the files."""
    text = files[name].decode()
    assert old in text, text
    return {**files, name: text.replace(old, new, 1).encode()}
