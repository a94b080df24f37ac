"""`hccc standard`: words about ranks and roots that make no sense."""

from __future__ import annotations

import pytest

from tests.cli.commandline import Hccc


@pytest.mark.parametrize(
    ("ranks", "root", "why"),
    [
        ("0", "0", "'0' are not numbers of ranks; write 8, or 2+2"),
        ("2+", "0", "'2+' are not numbers of ranks"),
        ("2+-2", "0", "'2+-2' are not numbers of ranks"),
        ("1000+25", "0", "'1000+25' are more than 1024 ranks"),
        ("2", "2", "2 is no rank of 2"),
        ("2+1", "3", "3 is no rank of 3"),
        ("0,2+1", "3", "3 is no rank of 3"),
        ("0,2+2", "0", "'0,2+2' are not ranks 0, 1, ..., each once"),
        ("0,3+1", "0", "'0,3+1' are not ranks 0, 1, ..., each once"),
        ("0,2+", "0", "'0,2+' are not numbers of ranks"),
        (",".join(map(str, range(1025))), "0", "are more than 1024 ranks"),
    ],
)
def test_usage(hccc: Hccc, ranks: str, root: str, why: str) -> None:
    code, out, err = hccc("standard", "--ranks", ranks, "--collective", "broadcast", "--root", root)
    assert code == 2 and not out and why in " ".join(err.split())


def test_arrays_of_gpus_alone_are_combined(hccc: Hccc) -> None:
    code, out, err = hccc("standard", "--ranks", "1", "--collective", "combine")
    assert code == 2 and not out and "combine is for GPUs" in " ".join(err.split())


def test_gpus_of_several_hosts(hccc: Hccc) -> None:
    words = ("--ranks", "1+1", "--collective", "broadcast", "--platform", "cuda")
    code, out, err = hccc("standard", *words)
    assert code == 2 and not out and "GPUs are of one host" in " ".join(err.split())
