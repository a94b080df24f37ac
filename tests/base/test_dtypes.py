"""The one table of dtypes and reductions, and its copies in C."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hccc.base import dtypes
from hccc.base.building.compiler import find_compiler
from hccc.emit.directory import headers
from hccc.runtime.layout import DTYPES

HEADERS = dict(headers())
NUMBERS = ("RANKS", "SUB", "CHANNELS", "BLOCKS", "FLAGS", "SCRATCH", "STAGE", "QUEUES", "SLOTS")
SHAPE = [f"-DHCCC_{name}=1" for name in (*NUMBERS, "GRAIN")]
INCLUDE = Path(__file__).parents[2] / "runtime" / "include"


def test_numpy_has_the_same_types() -> None:
    assert tuple(DTYPES) == dtypes.NAMES
    for name, found in DTYPES.items():
        dtype = dtypes.BY_NAME[name]
        assert (found.name, found.itemsize) == (dtype.numpy, dtype.bytes)
        whole = np.issubdtype(found, np.integer)
        signed = "i" if np.issubdtype(found, np.signedinteger) else "u"
        assert dtype.kind == (signed if whole else "f")


def test_names_and_aliases_mean_one_type_each() -> None:
    words = [word for dtype in dtypes.ALL for word in {dtype.name, *dtype.aliases}]
    assert len(words) == len(set(words))
    assert len(set(dtypes.NCCL_NAMES.values())) == len(dtypes.ALL)
    assert all(dtype.accumulate in dtypes.BY_NAME for dtype in dtypes.ALL)
    for dtype in dtypes.ALL:
        assert dtypes.BY_NAME[dtypes.STAND_IN[dtype.name]].bytes == dtype.bytes


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
    """Storage, size, type of the sums, and which reductions divide."""
    wide = dtypes.BY_NAME[dtype.accumulate]
    divides = "".join(
        f"static_assert(hccc_op_{r.name}::divides == {str(r.divides).lower()});\n"
        for r in dtypes.REDUCTIONS
    )
    source = tmp_path / "check.cpp"
    source.write_text(
        f'#include "hccc/layout.h"\n#include "hccc/port.h"\n#include "hccc/types.h"\n'
        f"#include <stdint.h>\n#include <type_traits>\n"
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
