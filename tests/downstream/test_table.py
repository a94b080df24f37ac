"""`[tool.hccc]`: its keys, and the CMake text made of it."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hccc.downstream.cmake_project import cmake_text, quoted
from hccc.downstream.table import CollectiveLibrary, TableError, collectives
from tests.downstream.projects import EXAMPLES

RING = CollectiveLibrary(name="ring", algorithm=("ring.rccl",), package="demo")


def read(text: str) -> tuple[CollectiveLibrary, ...]:
    return collectives(tomllib.loads(text))


def test_the_example() -> None:
    (found,) = read((EXAMPLES / "python_setuptools" / "pyproject.toml").read_text())
    assert found == CollectiveLibrary(
        name="four_sum",
        algorithm=("ring.rccl",),
        package="ring_setuptools",
        cluster="node.cluster",
        targets=("cpu",),
        dtypes=("float32", "float64"),
        ops=("sum",),
    )


def test_a_project_without_the_table_asks_for_nothing() -> None:
    assert read("[tool.other]\nx = 1") == read("") == read("[tool.hccc]") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tool = 1", "[tool] is not a table"),
        ("[tool.hccc]\ncollective = 1", "there is no 'collective'; there are collectives"),
        ("[tool.hccc]\ncollectives = 1", "[tool.hccc.collectives] is not a table"),
        ("[tool.hccc.collectives]\na = 1", "[tool.hccc.collectives.a] is not a table"),
        ("[tool.hccc.collectives.a]\npackage = 'p'", "algorithm is missing"),
        ("[tool.hccc.collectives.a]\nalgorithm = []\npackage = 'p'", "algorithm is missing"),
        ("[tool.hccc.collectives.a]\nalgorithm = 1\npackage = 'p'", "1 is not a text"),
        ("[tool.hccc.collectives.a]\nalgorithm = ['a', '']\npackage = 'p'", "'' is not a text"),
        ('[tool.hccc.collectives.a]\nalgorithm = "a\\nb"\npackage = "p"', "of one line"),
        ("[tool.hccc.collectives.a]\nalgorithm = 'a'\npackage = 'p'\nnative = 1", "true or false"),
        ("[tool.hccc.collectives.a]\nname = 'b'", "there is no 'name'"),
        ("[tool.hccc.collectives.a-b]\nalgorithm = 'a'", "C functions cannot have it"),
        ("[tool.hccc.collectives.hccc_a]\nalgorithm = 'a'", "hccc's own names"),
        ("[tool.hccc.collectives.all]\nalgorithm = 'a'", "a target of every CMake project"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(TableError) as caught:
        read(text)
    assert said in str(caught.value)


def test_a_name_without_a_file_is_of_what_ships(tmp_path: Path) -> None:
    assert "[=[ring.rccl]=]" not in cmake_text([RING], tmp_path)  # a path: of this folder
    assert f"[=[{tmp_path / 'ring.rccl'}]=]" in cmake_text([RING], tmp_path)
    shipped = CollectiveLibrary(
        name="x", algorithm=("ring_allreduce",), package="p", cluster="dgx-h100"
    )
    assert cmake_text([shipped], tmp_path).endswith(
        "hccc_add_collective([=[x]=] [=[ring_allreduce]=] SHARED CLUSTER [=[dgx-h100]=])\n"
    )
    (tmp_path / "ring_allreduce").touch()
    assert f"[=[{tmp_path / 'ring_allreduce'}]=]" in cmake_text([shipped], tmp_path)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(WORDS | st.sampled_from(["]=]", "${A}", "]", "[[", "a]==]b", '"', "\\"])))
def test_cmake_takes_words_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, words: list[str]
) -> None:
    """No quote, bracket, backslash or variable in a word means anything."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    script = tmp_path_factory.mktemp("words") / "words.cmake"
    script.write_text("".join(f'message("<" {quoted(word)} ">")\n' for word in words))
    done = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True)
    assert done.stderr == "".join(f"<{word}>\n" for word in words)
