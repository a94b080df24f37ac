"""find_package(hccc) of an installed wheel: a C project, built, changed and built again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hccc import __version__
from hccc.base.building.build import digest_of_folder
from tests.downstream.projects import Project, copied, newer, project
from tests.installed import Installed, tools
from tests.marks import some

pytestmark = pytest.mark.slow
GENERATORS = {"Ninja": "ninja", "Unix Makefiles": "make"}


@pytest.fixture(params=some(list(GENERATORS), 2))
def built(request: pytest.FixtureRequest, tmp_path: Path, installed: Installed) -> Project:
    """Builds the C project by each kind of build tool, in folders whose names have spaces."""
    tools(["cmake", "cc", "c++", GENERATORS[request.param]])
    return project(tmp_path, installed, "-G", request.param)


def compiled(said: str) -> set[str]:
    """Returns the sources that a build compiled, by the ends of the names of their objects."""
    return set(re.findall(r"Building \w+ object \S*?([^/\s]+)\.o\b", said))


def test_it_runs_and_is_rebuilt_as_far_as_something_changed(built: Project) -> None:
    program = built.build / "sum_of_ranks"
    assert built.hccc.run(program) == "4 ranks, 100000 elements: right\n"
    assert not compiled(built.built())
    newer(built.source / "ring.rccl")
    assert not compiled(built.built())  # another time, the same text

    built.edit("ring.rccl", "nWarps=16", "nWarps=8")
    said = built.built()
    assert "hccc: compiling allreduce" in said
    assert any(name.endswith("_cpu.cpp") for name in compiled(said))
    assert built.hccc.run(program) == "4 ranks, 100000 elements: right\n"
    assert not compiled(built.built())

    built.edit("node.cluster", "A100", "H100")
    assert "hccc: compiling allreduce" in built.built()
    plan = built.build / "allreduce.hccc" / "kernels" / "plan.json"
    assert "H100" in plan.read_text()
    assert built.hccc.run(program) == "4 ranks, 100000 elements: right\n"
    assert not compiled(built.built())


def test_hccc_on_path_is_found(tmp_path: Path, installed: Installed) -> None:
    """By share/cmake/hccc of its prefix, which includes the packaged configuration."""
    tools(["cmake", "cc", "c++"])
    made = Project(copied("cmake", tmp_path / "a project"), tmp_path / "its build", installed)
    done = made.configure_by_path()
    assert done.returncode == 0, done.stdout + done.stderr
    cache = (made.build / "CMakeCache.txt").read_text()
    assert f"hccc_DIR:PATH={installed.bin.parent}/share/cmake/hccc" in cache
    text = (made.source / "CMakeLists.txt").read_text()
    (made.source / "CMakeLists.txt").write_text(text.replace("hccc REQUIRED", "hccc 99 REQUIRED"))
    done = made.configure_by_path()
    assert done.returncode and __version__ in done.stderr


def test_a_wrong_algorithm_is_an_error_with_its_place(built: Project) -> None:
    built.edit("ring.rccl", "(r - s) % nRanks, rrc", "(r - s) % nRanks, rrx")
    done = built.make()
    assert done.returncode
    place = f"{built.source / 'ring.rccl'}:5:64: error[E014]"
    assert place in done.stderr
    caret = re.search(r"\n    5 \| (.*rrx\))\n      \| ( *\^\^\^)\n", done.stderr)
    assert caret and caret[1].index("rrx") == caret[2].index("^")
    assert built.make().returncode  # and is one until it is mended
    built.edit("ring.rccl", "rrx", "rrc")
    assert not compiled(built.built())


def test_another_compiler_writes_again(tmp_path: Path, installed: Installed) -> None:
    """A hccc with one changed file: the template of kernels."""
    tools(["cmake", "cc", "c++", "ninja"])
    theirs = Path(shutil.copytree(installed.bin.parent, tmp_path / "environment", symlinks=True))
    (package,) = theirs.glob("lib/python*/site-packages/hccc")
    python = f"-DHCCC_EXECUTABLE={theirs / 'bin' / 'python'};-m;hccc"
    folder = f"-Dhccc_DIR={package / 'downstream' / 'cmake'}"
    made = project(tmp_path, installed, "-G", "Ninja", python, folder)
    assert not compiled(made.built())
    template = package / "templates" / "kernel.jinja"
    text = template.read_text()
    template.write_text(text.replace("#include", "// another compiler's\n#include", 1))
    newer(template)
    said = made.built()
    assert "hccc: compiling allreduce" in said
    assert any(name.endswith("_cpu.cpp") for name in compiled(said))
    assert "sum_of_ranks.c" not in compiled(said)  # the header is unchanged


@pytest.mark.parametrize("shared", some(["ON", "OFF"], 2))
def test_a_program_in_c_links_the_runtime(
    tmp_path: Path, installed: Installed, shared: str
) -> None:
    tools(["cmake", "cc", "c++", "ninja"])
    options = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", f"-DBUILD_SHARED_LIBS={shared}")
    made = project(tmp_path, installed, *options, name="cmake_runtime")
    assert installed.run(made.build / "four_ranks") == "4 ranks, 100000 elements: right\n"
    assert bool(list(made.build.rglob("libhccc_runtime.so"))) is (shared == "ON")
    assert not compiled(made.built())
    # Standard collectives of C and of Python are kept in one place.
    (headers,) = installed.bin.parent.glob("lib/python*/site-packages/hccc/runtime/include")
    assert digest_of_folder(headers) in (made.build / "build.ninja").read_text()


HIP = Path("/usr/include/hip/hip_runtime_api.h")


def test_a_program_in_c_links_the_kernels_of_gpus(tmp_path: Path, installed: Installed) -> None:
    """Of those that have compilers here. The kernels refuse null tables, and describe themselves
    without a GPU."""
    tools(["cmake", "cc", "c++", "ninja"])
    gpus = ["cuda"] if shutil.which("nvcc") else []
    gpus += ["hip"] if shutil.which("clang++-19") and HIP.exists() else []
    if not gpus:
        pytest.skip("no nvcc, and no clang++-19 with HIP's headers")
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_HIP_COMPILER=clang++-19")
    made = project(tmp_path, installed, "-G", "Ninja", *options)
    made.edit("CMakeLists.txt", "TARGETS cpu", f"TARGETS cpu {' '.join(gpus)}")
    refused = 'allreduce_{}(0, 0, "float32", "sum", 0) == HCCC_BAD_ARGUMENT'
    described = "allreduce_{}_library()->n_ranks == RANKS"
    checks = " && ".join(f"{refused} && {described}".replace("{}", gpu) for gpu in gpus)
    begin = "int main(void) {\n"
    made.edit("sum_of_ranks.c", begin, f"{begin}  if (!({checks})) return 1;\n")
    assert f"allreduce: {';'.join(['cpu', *gpus])}; float32; sum;max" in made.built()
    assert installed.run(made.build / "sum_of_ranks") == "4 ranks, 100000 elements: right\n"


CALLS = {
    "(1x ring.rccl)": "'1x' is not a name that C functions can have",
    "(hccc_x ring.rccl)": "what begins with `hccc_` are hccc's own names",
    "(x)": "no algorithm is given",
    "(x ring.rccl CLUSTER)": "CLUSTER without a value",
    "(x ring.rccl STATIC SHARED)": "STATIC or SHARED, not both",
    "(x ring.rccl OPTIONS -o elsewhere)": "OPTIONS -o is not for you to give",
    "(x nowhere.rccl)": "nowhere.rccl",
    "(x -)": "stdin is not there for builds",
    "(x ring.rccl CLUSTER -)": "stdin is not there for builds",
    "(x ring.rccl OPTIONS --help)": "x is not compiled",
    "(x ring.rccl TARGETS gpu)": "'gpu' is not one of cuda, hip, cpu",
    "(x ring.rccl TARGETS cpu DTYPES half)": "there is no dtype 'half'",
    "(x ring.rccl OPTIONS --channels none)": "--channels",
    '(x "ring.rccl$(touch${IFS}made)")': "cannot read",
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_refused(tmp_path: Path, installed: Installed, call: str) -> None:
    tools(["cmake", "cc", "c++", "ninja"])
    source = tmp_path / "source"
    source.mkdir()
    (source / "ring.rccl").write_text("ResCCLAlgo(")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(wrong LANGUAGES C)\n"
        f"find_package(hccc REQUIRED)\nhccc_add_collective{call}\n"
    )
    if "DTYPES" in call or "hccc_x" in call:  # what the program itself is wrong in is told first
        shutil.copy(Path(__file__).parents[2] / "examples" / "sendrecv.rccl", source / "ring.rccl")
    done = Project(source, tmp_path / "build", installed).configure("-G", "Ninja")
    assert done.returncode and CALLS[call] in " ".join(done.stderr.split())
    assert not list(tmp_path.rglob("made"))


def test_several_libraries_of_a_project(tmp_path: Path, installed: Installed) -> None:
    """Each has its own options; shipped files go by name; several are one."""
    tools(["cmake", "cc", "c++", "ninja"])
    made = project(tmp_path, installed, "-G", "Ninja")
    lists = made.source / "CMakeLists.txt"
    lists.write_text(
        lists.read_text()
        + "hccc_add_collective(eight ring_allreduce rhd_allreduce SHARED TARGETS cpu\n"
        '  DTYPES float64 OPS sum CLUSTER dgx-h100 OPTIONS --plans 2 "--sizes=1K..1M")\n'
        'message(STATUS "kept: ${HCCC_DTYPES}; ${HCCC_OPS}; ${BUILD_SHARED_LIBS}.")\n'
    )
    newer(lists)
    said = made.built()
    assert "kept: default; default; ." in said
    (library,) = made.build.rglob("libeight.so")
    assert list(made.build.rglob("liballreduce.a"))
    names = made.hccc.run("nm", "-D", "--defined-only", library)
    assert "eight_cpu_float64_sum" in names and "eight_cpu_float32_sum" not in names


def test_a_command_of_another_installation_is_refused(tmp_path: Path, installed: Installed) -> None:
    tools(["cmake", "ninja"])
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(v LANGUAGES NONE)\n"
        "find_package(hccc REQUIRED)\n"
    )
    made = Project(tmp_path, tmp_path / "build", installed)
    done = made.configure("-G", "Ninja", "-DHCCC_EXECUTABLE=/bin/echo;/elsewhere")
    assert done.returncode
    assert "/bin/echo;/elsewhere is not the hccc of" in " ".join(done.stderr.split())


def test_a_package_of_another_version_is_not_found(tmp_path: Path, installed: Installed) -> None:
    tools(["cmake", "ninja"])
    version = installed.run("hccc", "config", "--version").strip()
    for asked, found in ((version, True), ("0.0.1...<9", True), ("99", False)):
        source = tmp_path / asked
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.21)\nproject(v LANGUAGES NONE)\n"
            f"find_package(hccc {asked} REQUIRED)\n"
        )
        done = Project(source, source / "build", installed).configure("-G", "Ninja")
        assert (done.returncode == 0) is found, done.stderr
