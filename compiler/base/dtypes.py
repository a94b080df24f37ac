"""dtypes: the element types and the reductions of generated kernels, each described once.

Command line, runtime, emitted sources and tests take them from here. The C++ of
`runtime/include/hccc/types.h` and the tables of `hccc.h` repeat them; a test compares. Imports
nothing, since the command line's help needs it; `runtime/layout.py` has the NumPy types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    name: in options, file names and entries (an identifier of C); nccl: as nccl-tests prints it;
    aliases: other names that options accept; kind: NumPy's letter; storage: the C type that kernels
    hold values in, on every target; c, cuda, hip: the type of a caller's buffer; accumulate: the
    dtype that reductions are computed in; numpy: the attribute of NumPy or of ml_dtypes.
    """

    name: str
    nccl: str
    aliases: tuple[str, ...]
    bytes: int
    kind: Literal["i", "u", "f"]
    storage: str
    c: str
    cuda: str
    hip: str
    accumulate: str
    numpy: str


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction. divides: the result is divided by the number of ranks, once, at its end."""

    name: str
    meaning: str
    divides: bool = False


def _integer(name: str, size: int, storage: str) -> Dtype:
    kind: Literal["i", "u"] = "u" if name.startswith("u") else "i"
    c = f"{name}_t"
    return Dtype(name, name, (), size, kind, storage, c, c, c, name, name)


def _real(name: str, nccl: str, size: int) -> Dtype:
    return Dtype(name, nccl, (nccl,), size, "f", nccl, nccl, nccl, nccl, name, name)


ALL: tuple[Dtype, ...] = (
    _integer("int8", 1, "signed char"),
    _integer("uint8", 1, "unsigned char"),
    _integer("int32", 4, "int"),
    _integer("uint32", 4, "unsigned"),
    _integer("int64", 8, "long long"),
    _integer("uint64", 8, "unsigned long long"),
    Dtype(
        "float16",
        "half",
        ("half",),
        2,
        "f",
        "unsigned short",
        "uint16_t",
        "__half",
        "__half",
        "float32",
        "float16",
    ),
    Dtype(
        "bfloat16",
        "bfloat16",
        (),
        2,
        "f",
        "unsigned short",
        "uint16_t",
        "__nv_bfloat16",
        "__hip_bfloat16",
        "float32",
        "bfloat16",
    ),
    _real("float32", "float", 4),
    _real("float64", "double", 8),
    Dtype(
        "float8e4m3",
        "f8e4m3",
        ("f8e4m3", "float8_e4m3", "float8_e4m3fn"),
        1,
        "f",
        "unsigned char",
        "uint8_t",
        "__nv_fp8_e4m3",
        "__hip_fp8_e4m3",
        "float32",
        "float8_e4m3fn",
    ),
    Dtype(
        "float8e5m2",
        "f8e5m2",
        ("f8e5m2", "float8_e5m2"),
        1,
        "f",
        "unsigned char",
        "uint8_t",
        "__nv_fp8_e5m2",
        "__hip_fp8_e5m2",
        "float32",
        "float8_e5m2",
    ),
)
REDUCTIONS: tuple[Reduction, ...] = (
    Reduction("sum", "the sum; integers wrap"),
    Reduction("prod", "the product; integers wrap"),
    Reduction("min", "the smallest value; NaN where one is"),
    Reduction("max", "the largest value; NaN where one is"),
    Reduction("avg", "the sum divided by the number of ranks; integers truncate", divides=True),
)

BY_NAME = {dtype.name: dtype for dtype in ALL}
NAMES = tuple(BY_NAME)
OPS = tuple(reduction.name for reduction in REDUCTIONS)
ALIASES = {alias: dtype.name for dtype in ALL for alias in dtype.aliases}
NCCL_NAMES = {dtype.name: dtype.nccl for dtype in ALL}

# The default choice of CMake projects: building all of them takes minutes.
DEFAULT_DTYPES = ("float32", "float16", "bfloat16")
DEFAULT_OPS = ("sum", "max", "avg")

# The dtype that is built for each width, for all dtypes of that width, if data only moves.
MOVED_AS = {1: "uint8", 2: "float16", 4: "uint32", 8: "uint64"}
STAND_IN = {dtype.name: MOVED_AS[dtype.bytes] for dtype in ALL}
