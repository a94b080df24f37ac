"""extension: the C++ backend, compiled against the installed PyTorch at its first import."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from hccc.base.building.build import Piece, build_pieces
from hccc.base.interruptible import at_once
from hccc.runtime.communicator import runtime_library
from hccc.runtime.communicator.rank import connect_streams
from hccc.runtime.device.device_layer import library as device_layer
from hccc.runtime.torch.installed import torch

HERE = Path(__file__).parent
_NAME = "hccc_c10d"  # as in PYBIND11_MODULE
# The platform of the device layer that a type of PyTorch's devices is of.
_PLATFORMS = {"cuda": "hip" if torch.version.hip else "cuda"}
_LIBRARIES = ("torch_python", "torch_cpu", "c10")  # loaded already: found by their names


def _flags(torch_folder: Path) -> tuple[str, ...]:
    """Returns the compiler's options. Versions are in them, since they name what is built."""
    headers = torch_folder / "include"
    include = [headers, headers / "torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    return (
        "-std=c++20",
        "-O2",
        f"-DHCCC_TORCH_VERSION={torch.__version__!r}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(word for path in include for word in ("-isystem", str(path))),
    )


def build(source: Path = HERE / "c10d.cpp") -> Path:
    """Builds an extension of PyTorch, in one process while others wait, unless it was. Raises
    UserError E412 to E414."""
    folder = Path(torch.__file__).parent
    own = tuple(HERE.parent / room / "include" for room in ("communicator", "device"))
    piece = Piece(source, include=own, flags=_flags(folder))
    return build_pieces([piece], [f"-L{folder / 'lib'}", *(f"-l{name}" for name in _LIBRARIES)])


def loaded(name: str, file: Path) -> Any:
    """Loads the extension of a file; name: as in its PYBIND11_MODULE."""
    loader = ExtensionFileLoader(name, str(file))
    spec = spec_from_loader(name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def extension() -> Any:
    """Loads the extension, once. Raises UserError E412 to E414."""
    builds: tuple[Callable[[], Path], ...] = (build, runtime_library.build)
    file, _ = at_once(lambda one: one(), builds)  # both take long, the first time
    module = loaded(_NAME, file)
    connect_streams()
    module.open(runtime_library.library().handle, device_layer().handle)
    for kind, platform in _PLATFORMS.items():
        module.set_platform(kind, platform)
    return module
