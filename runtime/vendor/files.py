"""files: where vendors' libraries are looked for (docs/vendors.md §1)."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from hccc.base.building.build import Piece, build_pieces
from hccc.runtime.communicator.errors import CommunicatorError, Result

SHIM = Path(__file__).parent / "oneccl_shim.cpp"
# The file of each vendor's library, as packages and systems name it.
FILES = {
    "nccl": "libnccl.so.2",
    "rccl": "librccl.so.1",
    "mpich": "libmpi_abi.so.1",
    "impi": "libmpi_abi.so.1",
    "mpi": "libmpi_abi.so.1",
    "oneccl": "libccl.so.1",
}
# The platform in whose GPUs' memory a vendor's library works; of others it is the host's.
PLATFORMS = {"nccl": "cuda", "rccl": "hip"}
_PACKAGES = {"nccl": "nvidia/nccl/lib"}  # in site-packages; others are in the environment's lib


def library_file(vendor: str, file: Path | str | None = None) -> Path | str | None:
    """Returns the file that is loaded for a vendor; None: the system's loader is asked.

    It is `file`, else what HCCC_VENDOR_LIBRARY names, else a package's. oneCCL's is built, unless
    it was.
    """
    named = file or os.environ.get("HCCC_VENDOR_LIBRARY") or find(vendor)
    if vendor == "oneccl" and (not named or Path(named).name.startswith("libccl.")):
        return shim(Path(named or FILES[vendor]))
    return named


def name_library() -> None:
    """Names the file of the library that HCCC_VENDOR asks for, which communicators load."""
    vendor = os.environ.get("HCCC_VENDOR", "")
    if vendor in FILES and (named := library_file(vendor)):
        os.environ["HCCC_VENDOR_LIBRARY"] = str(named)


def find(vendor: str) -> Path | None:
    """Finds a vendor's library in the Python packages of this environment; None: there is none, and
    the system's loader is asked."""
    name = FILES.get(vendor)
    if name is None:
        return None
    places = [Path(sys.prefix) / "lib"]
    if vendor in _PACKAGES:
        places = [Path(sysconfig.get_path("purelib")) / _PACKAGES[vendor]]
    return next((place / name for place in places if (place / name).is_file()), None)


def shim(file: Path) -> Path:
    """Builds the library through which oneCCL is called, of its C++ headers, unless it was built.

    Names libfabric for oneCCL, which brings none, where one is beside it. file: libccl.so.1.

    Raises CommunicatorError where there are no headers, UserError E412 to E414.
    """
    folder = file.resolve().parent
    include = folder.parent / "include"
    if not (file.is_file() and (include / "oneapi" / "ccl.hpp").is_file()):
        what = "there is no such file" if not file.is_file() else f"{include} has no oneapi/ccl.hpp"
        text = f"oneCCL, {file}: {what}; name libccl.so.1 in HCCC_VENDOR_LIBRARY, of packages "
        raise CommunicatorError(Result.INVALID_USAGE, f"{text}oneccl-cpu, oneccl, oneccl-cpu-devel")
    for fabric in (folder / "libfabric.so.1", folder / "mpich" / "libfabric.so.1"):
        if fabric.is_file():
            os.environ.setdefault("CCL_OFI_LIBRARY_PATH", str(fabric))
    flags = ("-O2", "-fvisibility=hidden", "-isystem", str(include))
    return build_pieces([Piece(SHIM, flags=flags)], [str(file), f"-Wl,-rpath,{folder}"])
