"""The emitted directory's CMake build and README: every option, and programs in C alone."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.base import dtypes
from hccc.emit import directory
from hccc.emit.targets import CPU, CUDA, TARGETS, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.measure.patterns import Pattern
from tests.emit import launch, plans
from tests.emit.plans import written
from tests.marks import slow

RING = plans.compiled(plans.ring_allreduce(4, channels=2))
GATHER = plans.compiled(plans.ring_allgather(5))
ONE = ("-DHCCC_TARGETS=cpu", "-DHCCC_DTYPES=float32", "-DHCCC_OPS=sum")


def run(*command: str | Path) -> str:
    """Returns a command's output; fails with its messages."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def readme(plan: Plan) -> str:
    return directory.files(Catalogue.of(plan), TARGETS, "")["README.md"]


def example(plan: Plan, place: Path) -> Path:
    """Writes the C program and the project around it, as README has them."""
    place.mkdir()
    for name, language in (("example.c", "c"), ("CMakeLists.txt", "cmake")):
        block = re.search(rf"```{language}\n(.*?)```", readme(plan), re.S)
        assert block
        (place / name).write_text(block[1])
    return place


def built(cmake: str, place: Path, *options: str) -> Path:
    run(cmake, "-S", place, "-B", place / "b", *options)
    run(cmake, "--build", place / "b")
    return place / "b"


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["ON", slow("OFF")])
def test_an_installed_directory_serves_a_program_in_c(
    tmp_path: Path, cmake: str, shared: str
) -> None:
    prefix = tmp_path / "prefix"
    place = built(cmake, written(RING, tmp_path / "k"), *ONE, f"-DBUILD_SHARED_LIBS={shared}")
    run(cmake, "--install", place, "--prefix", prefix)
    user = built(cmake, example(RING, tmp_path / "user"), f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(user / "example") == "done\n"
    assert "CMAKE_CXX_COMPILER:" not in (user / "CMakeCache.txt").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
@pytest.mark.parametrize("libraries", ["lib", slow("lib/x86_64-linux-gnu")])
def test_pkg_config_finds_an_installed_library(
    tmp_path: Path, cmake: str, libraries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, program = tmp_path / "moved to", tmp_path / "program"
    folder = f"-DCMAKE_INSTALL_LIBDIR={libraries}"
    place = built(cmake, written(RING, tmp_path / "k"), *ONE, folder)
    run(cmake, "--install", place, "--prefix", prefix)
    monkeypatch.setenv("PKG_CONFIG_PATH", str(prefix / libraries / "pkgconfig"))
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", RING.name))
    source = example(RING, tmp_path / "user") / "example.c"
    run("cc", source, *flags, "-o", program)
    assert run(program) == "done\n"


@pytest.mark.slow
def test_a_program_in_c_adds_the_directory(tmp_path: Path, cmake: str) -> None:
    written(RING, tmp_path / "k")
    user = example(RING, tmp_path / "user")
    project = (user / "CMakeLists.txt").read_text()
    adding = f"add_subdirectory({tmp_path / 'k'} {RING.name})"
    assert "find_package(ring REQUIRED)" in project
    (user / "CMakeLists.txt").write_text(project.replace("find_package(ring REQUIRED)", adding))
    assert run(built(cmake, user, *ONE) / "example") == "done\n"


@pytest.mark.slow
def test_archives_need_no_cxx_library(tmp_path: Path, cmake: str) -> None:
    place = built(cmake, written(RING, tmp_path / "k"), *ONE)
    undefined = run("nm", "-u", next(place.rglob("lib*.a")))
    assert "pthread_create" in undefined
    assert not re.findall(r"U (_Z\w+|__gxx_\w+|__cxa_(?!atexit)\w+)", undefined)


@pytest.mark.slow
def test_one_of_each_width_moves_all_types(tmp_path: Path, cmake: str) -> None:
    options = ["-DHCCC_DTYPES=float32;int8", "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_CUDA_COMPILER="]
    place = built(cmake, written(GATHER, tmp_path / "k"), *options)
    world = launch.PlanRanks(next(place.rglob(f"lib{GATHER.name}.so")), GATHER)
    assert world.wrong(Pattern(GATHER.collective, "float32", "sum", 100)) == 0
    assert world.wrong(Pattern(GATHER.collective, "uint8", "sum", 100, 1)) == 0
    with pytest.raises(AssertionError, match="'is': 6"):
        world.wrong(Pattern(GATHER.collective, "float64", "sum", 100))


@pytest.mark.slow
def test_what_is_not_built_and_what_there_is_not(tmp_path: Path, cmake: str) -> None:
    place = built(cmake, written(RING, tmp_path / "k"), *ONE, "-DBUILD_SHARED_LIBS=ON")
    world = launch.PlanRanks(next(place.rglob("lib*.so")), RING)
    assert world.wrong(Pattern(RING.collective, "float32", "sum", 100)) == 0
    for dtype, op in (("float64", "sum"), ("float32", "prod")):
        with pytest.raises(AssertionError, match="'is': 6"):  # HCCC_NOT_BUILT
            world.wrong(Pattern(RING.collective, dtype, op, 100))
    for names in ((b"float31", b"sum"), (b"float32", b"xor"), (b"float32", None)):
        assert world.entry(None, None, *names) == 2  # HCCC_BAD_ARGUMENT


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("HCCC_DTYPES=float31", "HCCC_DTYPES: there is no dtype 'float31'"),
        ("HCCC_DTYPES=float32;half", "no dtype 'half'"),
        ("HCCC_DTYPES=", "HCCC_DTYPES is empty"),
        ("HCCC_OPS=sum;xor", "HCCC_OPS: there is no reduction 'xor'"),
        ("HCCC_TARGETS=gpu", "HCCC_TARGETS: there is no target 'gpu'; there are cpu, cuda, hip"),
        ("HCCC_TARGETS=cuda", "there is no compiler for 'cuda'"),
        ("HCCC_TARGETS=cpu;hip", "there is no compiler for 'hip'"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, cmake: str, option: str, said: str) -> None:
    place = written(RING, tmp_path / "k")
    none = ["-DCMAKE_CUDA_COMPILER=", "-DCMAKE_HIP_COMPILER="]
    command = [cmake, "-S", str(place), "-B", str(tmp_path / "b"), f"-D{option}", *none]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and said in " ".join(done.stderr.split())


def configured(cmake: str, plan: Plan, place: Path, *options: str) -> str:
    """Returns the line that says which libraries will be built."""
    said = run(cmake, "-S", written(plan, place / "k"), "-B", place / "b", *options)
    line = re.search(rf"-- {plan.name}: (.*)", said)
    assert line
    return line[1]


@pytest.mark.slow
def test_defaults_and_all(tmp_path: Path, cmake: str) -> None:
    cpu = "-DHCCC_TARGETS=cpu"
    types, ops = ";".join(dtypes.DEFAULT_DTYPES), ";".join(dtypes.DEFAULT_OPS)
    assert configured(cmake, RING, tmp_path / "a", cpu) == f"cpu; {types}; {ops}"
    everything = f"cpu; {';'.join(dtypes.NAMES)}; {';'.join(dtypes.OPS)}"
    all_of = ["-DHCCC_DTYPES=all", "-DHCCC_OPS=all"]
    assert configured(cmake, RING, tmp_path / "b", cpu, *all_of) == everything
    # Data only moves: one type of each width is built, for all that are asked for.
    widths = {"uint8", "uint32", "uint64", "float16"}
    usual = [name for name in dtypes.NAMES if name != "complex128"]
    for place, options, names, built in (
        (tmp_path / "c", all_of, dtypes.NAMES, widths | {"complex128"}),
        (tmp_path / "d", [], usual, widths),
    ):
        asked = [cpu, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options]
        assert configured(cmake, GATHER, place, *asked) == f"cpu; {';'.join(names)}"
        commands = (place / "b" / "compile_commands.json").read_text()
        assert set(re.findall(r"HCCC_DTYPE=(\w+)", commands)) == built


@pytest.mark.slow
def test_cuda_architectures(tmp_path: Path, cmake: str, nvcc: str) -> None:
    place = written(RING, tmp_path / "k")
    cuda = ["-DHCCC_TARGETS=cuda", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DHCCC_OPS=sum"]
    few = ["-DHCCC_DTYPES=float32", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    for given, wanted in ((None, "compute_80"), ("90", "compute_90")):
        build = tmp_path / wanted
        more = [f"-DCMAKE_CUDA_ARCHITECTURES={given}"] if given else []
        run(cmake, "-S", place, "-B", build, *cuda, *few, *more)
        commands = (build / "compile_commands.json").read_text()
        assert set(re.findall(r"arch=(compute_\d+)", commands)) == {wanted}
        assert "HCCC_DTYPE=float32" in commands and "_cpu.cpp" not in commands
    old = [cmake, "-S", str(place), "-B", str(tmp_path / "o"), *cuda]
    done = subprocess.run(
        [*old, "-DCMAKE_CUDA_ARCHITECTURES=90;61"], capture_output=True, text=True, check=False
    )
    assert done.returncode and "'61' is too old" in done.stderr


@pytest.fixture
def hip_options(hip: str) -> list[str]:
    """Returns options that build for AMD with a plain clang; skips if HIP is not installed."""
    if not Path("/usr/include/hip/hip_runtime_api.h").exists():
        pytest.skip("HIP's headers are not installed")
    bundler = Path(hip).resolve().with_name("clang-offload-bundler")
    if not bundler.exists():
        pytest.skip(f"no {bundler.name} beside {hip}")
    return ["-DHCCC_TARGETS=hip", f"-DCMAKE_HIP_COMPILER={hip}", "-DHCCC_OPS=sum"]


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["ON", "OFF"])
def test_the_hip_library_builds_and_loads(
    tmp_path: Path, cmake: str, hip_options: list[str], shared: str
) -> None:
    types = ("float32", "bfloat16")
    more = [f"-DHCCC_DTYPES={';'.join(types)}", f"-DBUILD_SHARED_LIBS={shared}"]
    place = built(cmake, written(RING, tmp_path / "k"), *hip_options, *more)
    entries = [RING.name + "_hip", *(f"{RING.name}_hip_{dtype}_sum" for dtype in types)]
    (library,) = place.rglob("libring_hip.*")
    if shared == "ON":
        loaded = ctypes.CDLL(str(library))
        assert all(hasattr(loaded, entry) for entry in entries)
    defined = re.findall(r" T (\w+)", run("nm", library))
    assert set(entries) <= set(defined)
    code = library.read_bytes()
    assert all(f"amdgcn-amd-amdhsa--{arch}".encode() in code for arch in ("gfx90a", "gfx942"))


HIP_USER = """#include "ring.h"
#include "hccc/gpu_memory.h"
int main(void) {
  int (*entry)() = (int (*)())ring_hip;
  void *memory;
  hccc_gpu_allocate(&memory, 64);
  return !entry || hccc_gpu_free(memory) != HCCC_OK;
}
"""
HIP_PROJECT = """cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(ring REQUIRED)
add_executable(user user.c)
target_compile_definitions(user PRIVATE __HIP_PLATFORM_AMD__)
target_link_libraries(user PRIVATE hccc::ring_hip)
"""


@pytest.mark.slow
def test_an_installed_hip_library_serves_a_program_in_c(
    tmp_path: Path, cmake: str, hip_options: list[str]
) -> None:
    place = built(cmake, written(RING, tmp_path / "k"), *hip_options, "-DHCCC_DTYPES=float32")
    run(cmake, "--install", place, "--prefix", tmp_path / "prefix")
    user = tmp_path / "user"
    user.mkdir()
    (user / "user.c").write_text(HIP_USER)
    (user / "CMakeLists.txt").write_text(HIP_PROJECT)
    run(built(cmake, user, f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}") / "user")


@pytest.mark.slow
def test_hip_architectures_and_rebuilds(tmp_path: Path, cmake: str, hip_options: list[str]) -> None:
    more = ["-DHCCC_DTYPES=float32", "-DCMAKE_HIP_ARCHITECTURES=gfx1030", "-DHCCC_ONE_DEVICE=ON"]
    flags = "-DCMAKE_HIP_FLAGS=-Wall -Werror"
    place = tmp_path / "b"
    run(cmake, "-S", written(RING, tmp_path / "k"), "-B", place, *hip_options, *more, flags)
    assert "-Wall -Werror" in run(cmake, "--build", place, "--verbose")
    code = next(place.rglob("ring_hip_float32_sum.o"))
    assert b"amdhsa--gfx1030" in code.read_bytes() and b"gfx90a" not in code.read_bytes()
    before = code.stat().st_mtime_ns
    run(cmake, "--build", place)
    assert code.stat().st_mtime_ns == before
    os.utime(tmp_path / "k" / "hccc" / "port_hip.h")
    run(cmake, "--build", place)
    assert code.stat().st_mtime_ns > before


# As Debian's, of clang 15: it takes NVIDIA's compiler where that is there, and knows no gfx942.
HIPCC = """#!/bin/sh
[ "$HIP_PLATFORM" = amd ] || {{ echo "nvcc fatal: Value 'hip' is not defined" >&2; exit 1; }}
case "$*" in *gfx942*) echo "clang: error: invalid target ID 'gfx942'" >&2; exit 1;; esac
exec {clang} "$@"
"""


@pytest.mark.slow
def test_hipcc_is_for_amd_and_for_what_it_knows(
    tmp_path: Path, cmake: str, hip_options: list[str], hip: str
) -> None:
    compiler = tmp_path / "hipcc"
    compiler.write_text(HIPCC.format(clang=hip))
    compiler.chmod(0o755)
    some = ["-DHCCC_TARGETS=hip", f"-DCMAKE_HIP_COMPILER={compiler}", *ONE[1:]]
    place, build = written(RING, tmp_path / "k"), tmp_path / "b"
    said = run(cmake, "-S", place, "-B", build, *some)
    assert f"{compiler} does not compile for gfx942" in said and "for gfx90a" not in said
    run(cmake, "--build", build)
    code = next(build.rglob("libring_hip.a")).read_bytes()
    assert b"amdgcn-amd-amdhsa--gfx90a" in code and b"gfx942" not in code


@pytest.mark.slow
def test_one_build_makes_the_libraries_of_all_platforms(
    tmp_path: Path, cmake: str, nvcc: str
) -> None:
    """By the compilers on PATH: NVIDIA's and Debian's hipcc."""
    hipcc = shutil.which("hipcc")
    if not hipcc or not Path("/usr/include/hip/hip_runtime_api.h").exists():
        pytest.skip("no hipcc (apt-get install --no-install-recommends hipcc)")
    place = written(RING, tmp_path / "k")
    said = run(cmake, "-S", place, "-B", tmp_path / "b", *ONE[1:], f"-DCMAKE_CUDA_COMPILER={nvcc}")
    assert "-- ring: cpu;cuda;hip; float32; sum" in said
    run(cmake, "--build", tmp_path / "b")
    made = {p.name: p.read_bytes() for p in (tmp_path / "b").rglob("libring*")}
    assert set(made) == {"libring.a", "libring_cuda.a", "libring_hip.a"}
    assert b"amdgcn-amd-amdhsa--gfx90a" in made["libring_hip.a"]


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["ON", "OFF"])
def test_a_library_records_where_it_is_asked_to(tmp_path: Path, cmake: str, trace: str) -> None:
    place = built(cmake, written(RING, tmp_path / "k"), *ONE, f"-DHCCC_TRACE={trace}")
    said = run("nm", next(place.rglob("*.a")))
    assert ("V hccc_tracing" in said) is (trace == "ON")


@pytest.mark.parametrize("targets", [TARGETS, (CPU,), (CUDA,)], ids=["all", "cpu", "cuda"])
def test_readme_golden(targets: tuple[Target, ...], golden: plans.Golden) -> None:
    plan = RING if CPU in targets else GATHER
    golden("README", directory.files(Catalogue.of(plan), targets, "")["README.md"])


def test_readme_is_safe_from_what_the_source_is_called() -> None:
    name = "x`<b>|*#.rccl"
    text = directory.files(Catalogue.of(replace(RING, source=name)), TARGETS, "")["README.md"]
    assert "from `x'<b>|*#.rccl`. Do not edit." in text


def test_readme_names_what_is_there() -> None:
    files = directory.files(Catalogue.of(RING), TARGETS, "")
    text = files["README.md"]
    named = set(re.findall(r"^\| `([\w./]+)` \|", text.partition("## Build")[0], re.M))
    assert files.keys() | {"hccc/"} >= named and len(named) == 10
    options = set(re.findall(r"^(?:set|option)\((HCCC_\w+)", files["CMakeLists.txt"], re.M))
    assert all(f"| `{name}` |" in text for name in options) and len(options) == 6
