"""The rendezvous under sanitizers: no data race, no wrong access, no leak."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.runtime.bootstrap.rendezvous import BOOTSTRAP

HERE = Path(__file__).parent
SOURCE = BOOTSTRAP.source
PARTS = sorted(path for path in SOURCE.parent.glob("*.cpp") if path != SOURCE)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_ranks_as_threads(sanitizer: str, tmp_path: Path) -> None:
    made = tmp_path / "stress"
    command: list[str | Path] = [
        "g++",
        "-std=c++17",
        "-O0",
        "-g1",
        "-pthread",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        f"-I{SOURCE.parent}",
        HERE / "stress.cpp",
        "-o",
        made,
    ]
    subprocess.run(command, check=True, timeout=300)
    # Older thread sanitizers need an address space that is not laid out at random.
    run = ["setarch", "-R", str(made)] if shutil.which("setarch") else [str(made)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
    assert "WARNING" not in done.stderr and "ERROR" not in done.stderr


_USE = """
#include "hccc_bootstrap.h"
int main(void) {
  hccc_unique_id id;
  hccc_bootstrap *b = 0;
  hccc_bootstrap_error e;
  if (hccc_bootstrap_unique_id(&id, &e)) return 1;
  if (hccc_bootstrap_open(&b, &id, 1, 0, 10, &e)) return 2;
  if (hccc_bootstrap_barrier(b, 10, 0)) return 3;
  hccc_bootstrap_close(b);
  hccc_bootstrap_close(0);
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_the_header_is_c_and_the_parts_compile_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "use.c").write_text(_USE)
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
    cc: list[str | Path] = ["gcc", "-std=c99", "-pedantic", *warnings, "-c", "use.c"]
    subprocess.run([*cc, f"-I{SOURCE.parent / 'include'}"], cwd=tmp_path, check=True)
    for part in PARTS:
        subprocess.run(["g++", "-std=c++17", *warnings, "-c", part], cwd=tmp_path, check=True)
    objects = sorted(tmp_path.glob("*.o"))
    assert len(objects) == len(PARTS) + 1
    subprocess.run(["g++", "-pthread", *objects, "-o", "use"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "use"], check=True, timeout=60)


def test_the_source_includes_every_part() -> None:
    included = [line.split('"')[1] for line in SOURCE.read_text().splitlines() if '"' in line]
    assert included == [path.name for path in PARTS]
