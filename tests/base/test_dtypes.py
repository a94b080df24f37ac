"""The one table of dtypes and reductions, and its copies in C."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hccc.base import dtypes
from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import UserError
from hccc.emit.directory import headers
from hccc.runtime.build import Variant, pairs
from hccc.runtime.layout import DTYPES

HEADERS = dict(headers())
NUMBERS = ("RANKS", "SUB", "CHANNELS", "BLOCKS", "FLAGS", "SCRATCH", "STAGE", "QUEUES", "SLOTS")
SHAPE = [f"-DHCCC_{name}=1" for name in (*NUMBERS, "GRAIN")]
INCLUDE = Path(__file__).parents[2] / "runtime" / "include"


def test_numpy_has_the_same_types() -> None:
    assert tuple(DTYPES) == dtypes.NAMES
    for name, found in DTYPES.items():
        dtype = dtypes.BY_NAME[name]
        assert (found.name, found.itemsize) == (dtype.numpy.rstrip("_"), dtype.bytes)
        assert dtype.kind == (found.kind if found.isbuiltin == 1 else "f")


def test_names_and_aliases_mean_one_type_each() -> None:
    words = [word for dtype in dtypes.ALL for word in {dtype.name, *dtype.aliases}]
    assert len(words) == len(set(words))
    assert len(set(dtypes.NCCL_NAMES.values())) == len(dtypes.ALL)
    assert all(dtype.accumulate in dtypes.BY_NAME for dtype in dtypes.ALL)
    for dtype in dtypes.ALL:
        assert dtypes.BY_NAME[dtypes.STAND_IN[dtype.name]].bytes == dtype.bytes


def test_numbers_are_those_of_the_c_interface() -> None:
    """In the header of communicators, and in order in the names of their library."""
    header = (INCLUDE.parent / "communicator" / "include" / "hccc_runtime.h").read_text()
    numbers = {m[1].lower(): int(m[2]) for m in re.finditer(r"^  hccc(\w+) = (\d+)", header, re.M)}
    table = [
        *((d.name, d.number) for d in dtypes.ALL),
        *((r.name.replace("_", ""), r.number) for r in dtypes.REDUCTIONS),
    ]
    assert [numbers[name] for name, _ in table] == [number for _, number in table]
    assert numbers["numtypes"] == len(dtypes.ALL)
    assert numbers["numops"] == len(dtypes.REDUCTIONS)
    source = (INCLUDE.parent / "communicator" / "libraries.cpp").read_text()
    found = re.findall(r'\{"(\w+)", (\d+), \'(\w)\'\}', source)
    by_number = sorted(dtypes.ALL, key=lambda one: one.number)
    assert found == [(one.name, str(one.bytes), one.kind) for one in by_number]
    ops = re.findall(r'\{"(\w+)", "(\w+)"\}', source)
    assert ops == [(r.name, r.kinds) for r in sorted(dtypes.REDUCTIONS, key=lambda one: one.number)]


def test_which_reductions_a_type_has() -> None:
    assert dtypes.reduces("bool", "sum") and not dtypes.reduces("bool", "avg")
    assert dtypes.reduces("uint16", "bxor") and not dtypes.reduces("float16", "bxor")
    assert dtypes.reduces("complex64", "avg") and not dtypes.reduces("complex64", "max")
    assert pairs(("bool", "float32"), ("avg", "land")) == [("bool", "land"), ("float32", "avg")]
    for given, message in (
        ((["complex64"], ["min"]), "there is no min of complex64"),
        ((["float32", "complex64"], ["sum", "bor"]), "there is no bor of float32"),
    ):
        with pytest.raises(UserError, match=message):
            pairs(*given)
    with pytest.raises(UserError, match="there is no land of float64"):
        Variant("float64", "land")


def test_the_device_headers_have_the_same_types_and_reductions() -> None:
    types = HEADERS["types.h"]
    assert set(re.findall(r"^typedef .* hccc_dtype_(\w+);$", types, re.M)) == set(dtypes.NAMES)
    assert set(re.findall(r"^struct hccc_op_(\w+)", types, re.M)) == set(dtypes.OPS)


def test_the_header_names_them() -> None:
    text = HEADERS["hccc.h"].replace("\n * ", " ")
    types = re.search(r"Dtypes: ([\w ]+)\.", text)
    ops = re.search(r"Reductions: ([\w ]+)\.", text)
    assert types and tuple(types[1].split()) == dtypes.NAMES
    assert ops and tuple(ops[1].split()) == dtypes.OPS


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_the_compiler_sees_what_the_table_says(dtype: dtypes.Dtype, tmp_path: Path) -> None:
    """Storage, size, type of the sums, which reductions there are and which divide."""
    wide = dtypes.BY_NAME[dtype.accumulate]
    divides = "".join(
        f"typedef hccc_op_{r.name}<hccc_dtype> op_{r.name};\n"
        f"static_assert(op_{r.name}::divides == {str(r.divides).lower()});\n"
        f"static_assert(op_{r.name}::multiplies == {str(r.name == 'premul_sum').lower()});\n"
        f"static_assert(op_{r.name}::takes(hccc_dtype::kind) == "
        f"{str(dtypes.reduces(dtype.name, r.name)).lower()});\n"
        for r in dtypes.REDUCTIONS
    )
    source = tmp_path / "check.cpp"
    source.write_text(
        f'#include "hccc/layout.h"\n#include "hccc/port.h"\n#include "hccc/types.h"\n'
        f"#include <stdint.h>\n#include <type_traits>\n"
        f"static_assert(hccc_dtype::kind == '{dtype.kind}');\n"
        f"static_assert(sizeof(hccc_T) == {dtype.bytes} && sizeof({dtype.c}) == {dtype.bytes});\n"
        f"static_assert(std::is_same_v<hccc_T, {dtype.storage}>);\n"
        f"static_assert(std::is_same_v<hccc_value, {wide.storage}>);\n{divides}"
    )
    options = ["-std=c++17", "-fsyntax-only", f"-I{INCLUDE}", f"-DHCCC_DTYPE={dtype.name}"]
    command = [find_compiler(), *options, *SHAPE, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_the_table_is_light() -> None:
    """The command line's help imports it."""
    code = (
        "import sys, hccc.base.dtypes; heavy = {'numpy', 'ml_dtypes', 'numba', 'lark'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
