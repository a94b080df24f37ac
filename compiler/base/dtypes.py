"""dtypes: the element types and the reductions of generated kernels, each described once.

Command line, runtime, emitted sources and tests take them from here. The C++ of
`runtime/include/hccc/types.h`, the tables of `hccc.h`, the numbers of `hccc_runtime.h` and the
names of `libraries.cpp` repeat them; a test compares. Imports nothing, since the command line's
help needs it; `runtime/layout.py` has the NumPy types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    name: in options, file names and entries (an identifier of C); number: hcccDataType_t, NCCL's
    where NCCL has the type; nccl: as nccl-tests prints it; aliases: other names that options
    accept; kind: NumPy's letter; storage: the C type that kernels hold values in, on every target;
    c, cuda, hip: the type of a caller's buffer; accumulate: the dtype that reductions are computed
    in; numpy: the attribute of NumPy or of ml_dtypes.
    """

    name: str
    number: int
    nccl: str
    aliases: tuple[str, ...]
    bytes: int
    kind: Literal["b", "i", "u", "f", "c"]
    storage: str
    c: str
    cuda: str
    hip: str
    accumulate: str
    numpy: str


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction.

    number: hcccRedOp_t, NCCL's where NCCL has the reduction; kinds: of the dtypes that it is for;
    divides: the result is divided by the number of ranks, once, at its end.
    """

    name: str
    number: int
    meaning: str
    kinds: str
    divides: bool = False


def _integer(name: str, number: int, size: int, storage: str) -> Dtype:
    kind: Literal["i", "u"] = "u" if name.startswith("u") else "i"
    c = f"{name}_t"
    return Dtype(name, number, name, (), size, kind, storage, c, c, c, name, name)


def _real(name: str, number: int, nccl: str, size: int) -> Dtype:
    return Dtype(name, number, nccl, (nccl,), size, "f", nccl, nccl, nccl, nccl, name, name)


def _complex(name: str, number: int, real: str, size: int) -> Dtype:
    on_gpu = f"{real.title()}Complex"
    c, storage = f"{real} _Complex", f"hccc_complex<{real}>"
    cuda, hip = f"cu{on_gpu}", f"hip{on_gpu}"
    return Dtype(name, number, name, (), size, "c", storage, c, cuda, hip, name, name)


ALL: tuple[Dtype, ...] = (
    _integer("int8", 0, 1, "signed char"),
    _integer("uint8", 1, 1, "unsigned char"),
    _integer("int32", 2, 4, "int"),
    _integer("uint32", 3, 4, "unsigned"),
    _integer("int64", 4, 8, "long long"),
    _integer("uint64", 5, 8, "unsigned long long"),
    Dtype(
        "float16",
        6,
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
        9,
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
    _real("float32", 7, "float", 4),
    _real("float64", 8, "double", 8),
    Dtype(
        "float8e4m3",
        10,
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
        11,
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
    _integer("int16", 12, 2, "short"),
    _integer("uint16", 13, 2, "unsigned short"),
    Dtype("bool", 14, "bool", (), 1, "b", "unsigned char", *("bool",) * 4, "bool_"),
    _complex("complex64", 15, "float", 8),
    _complex("complex128", 16, "double", 16),
)
REDUCTIONS: tuple[Reduction, ...] = (
    Reduction("sum", 0, "the sum; integers wrap; of bool, whether any is true", "biufc"),
    Reduction("prod", 1, "the product; integers wrap; of bool, whether all are true", "biufc"),
    Reduction("min", 3, "the smallest value; NaN where one is", "biuf"),
    Reduction("max", 2, "the largest value; NaN where one is", "biuf"),
    Reduction(
        "avg", 4, "the sum divided by the number of ranks; integers truncate", "iufc", divides=True
    ),
    Reduction("band", 5, "the bits that all have", "biu"),
    Reduction("bor", 6, "the bits that any has", "biu"),
    Reduction("bxor", 7, "the bits that an odd number of ranks has", "biu"),
    Reduction("land", 8, "1 if none is 0, else 0", "biu"),
    Reduction("lor", 9, "0 if all are 0, else 1", "biu"),
    Reduction("premul_sum", 10, "the sum of each rank's values times the rank's scalar", "iuf"),
)

BY_NAME = {dtype.name: dtype for dtype in ALL}
NAMES = tuple(BY_NAME)
OPS = tuple(reduction.name for reduction in REDUCTIONS)
ALIASES = {alias: dtype.name for dtype in ALL for alias in dtype.aliases}
NCCL_NAMES = {dtype.name: dtype.nccl for dtype in ALL}
KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}  # for messages
_DTYPES_OF = {r.name: frozenset(d.name for d in ALL if d.kind in r.kinds) for r in REDUCTIONS}


def accumulated(dtype: str, bits: int) -> str:
    """Returns the dtype that values are reduced in for HCCC_ACCUMULATE `bits` (types.h); for 0 each
    result of two is rounded to it."""
    found = BY_NAME[dtype]
    if bits == 0:
        return dtype
    wide = {"f": "float64", "c": "complex128"}.get(found.kind, dtype)
    return wide if bits == 64 else found.accumulate


def reduces(dtype: str, op: str) -> bool:
    """Tells whether values of a dtype can be reduced by a reduction.

    Raises:
        UserError: E330, E331 it is one's own, and wrong (`reductions/parse.py`).
    """
    if is_own(op):
        from hccc.base.reductions.parse import own

        return own(op).has(dtype)
    return dtype in _DTYPES_OF[op]


def is_own(op: str) -> bool:
    """Tells whether a reduction is one's own, known by its text."""
    return ":" in op


def named(op: str) -> str:
    """Returns the name of a reduction: of one's own what is before the colon of its text."""
    return op.split(":", 1)[0].strip()


# The default choice of CMake projects: building all of them takes minutes. Where data only moves,
# all dtypes but those of 16 bytes.
DEFAULT_DTYPES = ("float32", "float16", "bfloat16")
DEFAULT_MOVED = tuple(dtype.name for dtype in ALL if dtype.bytes < 16)
DEFAULT_OPS = ("sum", "max", "avg")

# The dtype that is built for each width, for all dtypes of that width, if data only moves.
MOVED_AS = {1: "uint8", 2: "float16", 4: "uint32", 8: "uint64", 16: "complex128"}
STAND_IN = {dtype.name: MOVED_AS[dtype.bytes] for dtype in ALL}
