"""`hccc nccl`: what is asked, and where the library is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commandline import Hccc


@pytest.mark.slow
def test_places(hccc: Hccc) -> None:
    code, out, err = hccc("nccl", "--path", "--preload")
    folder, file = out.splitlines()
    assert code == 0 and not err and Path(file).parent == Path(folder)
    assert Path(file).name == "libnccl.so.2" and Path(file).exists()


def test_usage(hccc: Hccc) -> None:
    code, out, err = hccc("nccl")
    assert code == 2 and not out and "Say what is asked: --path or --preload" in err
