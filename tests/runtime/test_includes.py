"""Each source of the runtime's libraries includes what it uses of C++'s library: compilers differ
in which headers include others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parent.parent.parent / "runtime"
SEARCHED = [RUNTIME / "include", *sorted(RUNTIME.glob("*/include"))]
# Sources that are built as one, with all that they include.
PIECES = (
    *("communicator/hcccruntime.cpp", "device/hcccrt.cpp", "bootstrap/bootstrap.cpp"),
    *("transport/transport.cpp", "vendor/hcccvendor.cpp", "vendor/oneccl_shim.cpp"),
    *("job/hcccjob.cpp", "nccl/hcccnccl.cpp", "torch/c10d.cpp"),
)
HEADERS = {
    "algorithm": "all_of any_of copy count count_if fill fill_n find find_if max max_element min "
    "min_element none_of remove_if sort stable_sort unique upper_bound clamp",
    "array": "array",
    "atomic": "atomic atomic_thread_fence memory_order_acquire memory_order_relaxed",
    "bit": "bit_floor",
    "chrono": "chrono",
    "condition_variable": "condition_variable",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception",
    "functional": "cref function ref",
    "future": "future promise",
    "limits": "numeric_limits",
    "map": "map",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag unique_lock",
    "new": "bad_alloc nothrow",
    "numeric": "accumulate exclusive_scan iota",
    "optional": "nullopt optional",
    "set": "set",
    "shared_mutex": "shared_lock shared_mutex",
    "sstream": "istringstream ostringstream stringstream",
    "fstream": "ifstream ofstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "system_error": "error_code generic_category system_error",
    "thread": "this_thread thread",
    "tuple": "tie tuple",
    "unordered_map": "unordered_map",
    "utility": "exchange move pair swap",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in HEADERS.items() for name in names.split()}


def sources(file: Path, found: dict[Path, str]) -> dict[Path, str]:
    """Adds a source and those of hccc's that it includes, with their texts."""
    file = file.resolve()
    if file not in found:
        found[file] = file.read_text(encoding="utf-8")
        for name in re.findall(r'#include ["<]([\w./]+)[">]', found[file]):
            for folder in (file.parent, *SEARCHED):
                if (folder / name).is_file():
                    sources(folder / name, found)
                    break
    return found


def missing(texts: dict[Path, str]) -> set[str]:
    """Lists headers of C++'s library whose names the sources use and that none of them includes."""
    text = "\n".join(texts.values())
    used = {HEADER_OF[name] for name in re.findall(r"std::(\w+)", text) if name in HEADER_OF}
    return used - set(re.findall(r"#include <(\w+)>", text))


@pytest.mark.parametrize("piece", PIECES)
def test_headers_that_are_used_are_included(piece: str) -> None:
    assert not missing(sources(RUNTIME / piece, {}))


def test_a_missing_header_is_found(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#include <string>\nstd::string name();\n")
    source = tmp_path / "a.cpp"
    source.write_text('#include "own.h"\nvoid f(const std::system_error &);\n')
    assert missing(sources(source, {})) == {"system_error"}
