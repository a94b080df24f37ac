"""Standard collectives that lie beside the library of communicators, as in a platform wheel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver.assumed import usual_hosts
from hccc.ir.collective import OpType
from hccc.runtime.communicator import Communicator, CommunicatorError, runtime_library
from hccc.runtime.communicator.communicator import Can
from hccc.runtime.communicator.kernels import built
from hccc.runtime.device import device_layer
from hccc.runtime.device.stream import Stream
from hccc.synth.builtin.direct import direct
from tests.communicator.world import alone

RANKS = 3
NAME = f"{RANKS}-allreduce.so"
FOUND: tuple[list[Can], list[str]] = ([Can.LOAD, Can.MAKE, Can.NOW, Can.MAKE], [])


@pytest.fixture
def package(tmp_path: Path, sums: Path) -> Path:
    """Makes a directory with both, for float32 and int32."""
    made = tmp_path / "package"
    (made / "standard" / "x86-64-v3").mkdir(parents=True)
    shutil.copy(runtime_library.build(), made / "libhccc.so")
    shutil.copy(built(sums, ["float32", "int32"], ["sum", "max"]), made / "standard" / NAME)
    return made


def of_installed(place: Path, other: Path) -> tuple[float, str, str]:
    """Loads what is in `place`, and returns a sum, and the errors of `other` and of an empty
    folder."""
    (c,) = Communicator.init_all(1)
    c.load(place)
    x = np.full(5, 3, np.float32)
    c.all_reduce(x)
    errors = []
    for wrong in (other, other / "nothing"):
        with pytest.raises(UserError) as caught:
            c.load(wrong)
        errors.append(caught.value.problem.message)
    c.destroy()
    return float(x.sum()), errors[0], errors[1]


@pytest.mark.slow
def test_a_folder_of_several_platforms_libraries(tmp_path: Path) -> None:
    kernels, lib, other = tmp_path / "kernels", tmp_path / "lib", tmp_path / "other"
    api.write(api.compile(direct(usual_hosts([1]), OpType.ALLREDUCE)), kernels)
    lib.mkdir()
    (other / "nothing").mkdir(parents=True)
    shutil.copy(built(kernels, ["float32"], ["sum"]), lib / "libsums.so")
    for name in ("libsums_cuda.so", "libsums_hip.so"):  # neither is opened
        (lib / name).write_text("of another platform")
        shutil.copy(lib / name, other)
    total, no_library, no_directory = alone(of_installed, lib, other)
    assert total == 15
    assert no_library == f"{other}: has no library for the CPU"
    assert no_directory.endswith("is no directory of kernels")


def first_calls(package: Path, variables: Mapping[str, str]) -> tuple[list[Can], list[str]]:
    """Returns what there is for calls of float32 and of int8, before and after a call of float32
    in a process that can make nothing, and the errors of that call."""
    device_layer.library()  # streams need it, and it would be built anew in an empty cache
    nothing = {"HCCC_STANDARD": "1", "HCCC_COMMAND": "/nowhere/hccc", "HCCC_PROGRESS": "off"}
    os.environ.update({**nothing, "XDG_CACHE_HOME": str(package.parent / "cache"), **variables})
    runtime_library.build = lambda: package / "libhccc.so"  # type: ignore[assignment]
    ranks = Communicator.init_all(RANKS)
    found = [ranks[0].can("all_reduce", dtype) for dtype in ("float32", "int8")]
    arrays = [np.full(50, r, np.float32) for r in range(RANKS)]
    streams = [Stream() for _ in ranks]
    errors = []
    for c, x, stream in zip(ranks, arrays, streams, strict=True):
        c.all_reduce(x, stream=stream)
    for c, stream in zip(ranks, streams, strict=True):
        stream.synchronize()
        try:
            c.check()
        except CommunicatorError as caught:
            errors.append(caught.text)
    if not errors:
        assert all((x == 3).all() for x in arrays)
        found += [ranks[0].can("all_reduce", dtype) for dtype in ("float32", "int8")]
    for c in ranks:
        c.destroy()
    return found, errors


def test_they_need_no_maker(package: Path) -> None:
    assert alone(first_calls, package, {}) == FOUND


def writable(package: Path) -> None:
    (package / "standard" / NAME).chmod(0o666)


def writable_place(package: Path) -> None:
    (package / "standard").chmod(0o777)


def linked(package: Path) -> None:
    made = package / "standard" / NAME
    made.symlink_to(made.rename(package / "elsewhere"))


def damaged(package: Path) -> None:
    (package / "standard" / NAME).write_bytes(b"no library")


def of_others(package: Path) -> None:
    if os.getuid():
        pytest.skip("only root gives files away")
    os.chown(package / "standard" / NAME, 12345, -1)


def unchanged(_: Path) -> None:
    pass


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("change", "variables"),
    [
        (writable, {}),
        (unchanged, {"HCCC_PREBUILT": "0"}),
        (writable_place, {}),
        (linked, {}),
        (damaged, {}),
        (of_others, {}),
    ],
)
def test_what_is_not_the_packages_is_not_loaded(
    package: Path, change: Callable[[Path], None], variables: Mapping[str, str]
) -> None:
    change(package)
    found, errors = alone(first_calls, package, variables)
    assert found == [Can.MAKE] * 2 and len(errors) == RANKS
    for error in errors:
        assert "does allreduce of float32" in error and "/nowhere/hccc cannot be run" in error


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text(), reason="an older processor")
def test_newer_processors_have_their_own(package: Path) -> None:
    """What every processor could run is then not looked at."""
    common = package / "standard" / NAME
    common.rename(package / "standard" / "x86-64-v3" / NAME)
    common.write_bytes(b"no library")
    assert alone(first_calls, package, {}) == FOUND
