"""The order of stores, barriers and flags in kernels for AMD: both laws of tests/gcn.py hold."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.ir.transport import CHOICES, Transport
from hccc.lang.transfer import load as transfer
from tests import gcn
from tests.marks import slow, some
from tests.runtime.handwritten import INCLUDE

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.rccl"))
ARCHITECTURES = ["gfx90a", "gfx942"]
DTYPES = ["float32", "bfloat16"]
CLANG = next(filter(None, map(shutil.which, ("clang++-19", "clang++-20"))), None)

needs_clang = pytest.mark.skipif(CLANG is None, reason="clang-19 is not installed")

HEAD = """
	.type	k,@function
k:
	{code}
.Lfunc_end0:
	.amdhsa_kernel k
"""
STORE = "global_store_dword v[0:1], v2, off"
WAIT = "s_waitcnt vmcnt(0)"


def scanned(*code: str) -> list[str]:
    """Lists the faults of a kernel with this code as "<outstanding> at <instruction>"."""
    (f,) = gcn.functions(HEAD.format(code="\n\t".join(code)))
    return [f"{fault.outstanding} at {fault.name}" for fault in gcn.faults(f)]


def test_a_store_before_a_barrier_is_waited_for() -> None:
    assert scanned(STORE, WAIT, "s_barrier", "s_endpgm") == []
    for wait in ("s_nop 0", "s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(1)"):
        assert scanned(STORE, wait, "s_barrier", "s_endpgm") == ["a store at s_barrier"]


def test_a_write_back_before_a_store_is_waited_for() -> None:
    assert scanned("buffer_wbl2", WAIT, STORE, "s_endpgm") == []
    assert scanned("buffer_wbl2", STORE, "s_endpgm") == [
        "a write-back at global_store_dword",
    ]


def test_every_path_is_followed() -> None:
    skipped = [STORE, "s_cbranch_execz .LBB0_1", WAIT, ".LBB0_1:", "s_barrier", "s_endpgm"]
    assert scanned(*skipped) == ["a store at s_barrier"]
    around = [".LBB0_1:", "s_barrier", STORE, "s_cbranch_scc1 .LBB0_1", "s_endpgm"]
    assert scanned(*around) == ["a store at s_barrier"]
    behind = [STORE, "s_branch .LBB0_1", "s_barrier", ".LBB0_1:", "s_endpgm"]
    assert scanned(*behind) == []


def test_a_called_function_may_leave_anything() -> None:
    call = "s_swappc_b64 s[30:31], s[4:5]"
    (said,) = scanned(call, "s_barrier", "s_endpgm")
    assert said == "a store, a write-back, an invalidation at s_barrier"
    assert scanned(call, WAIT, "s_barrier", "s_endpgm") == []


def test_a_far_jump_is_followed() -> None:
    far = [
        "s_getpc_b64 s[8:9]",
        ".Lpost_getpc0:",
        "s_add_u32 s8, s8, (.LBB0_9-.Lpost_getpc0)&1",
        "s_addc_u32 s9, s9, (.LBB0_9-.Lpost_getpc0)>>32",
        "s_setpc_b64 s[8:9]",
    ]
    rest = [WAIT, ".LBB0_9:", "s_barrier", "s_endpgm"]
    assert scanned(STORE, *far, *rest) == ["a store at s_barrier"]


def test_a_jump_to_nowhere_known_is_refused() -> None:
    with pytest.raises(ValueError, match="where does s_setpc_b64"):
        scanned("s_setpc_b64 s[4:5]")


PLACES = 8
CODE = st.lists(
    st.one_of(
        st.sampled_from([STORE, "buffer_wbl2", "buffer_inv sc1", WAIT, "s_barrier", "s_endpgm"]),
        st.builds(
            "{} .L{}".format,
            st.sampled_from(["s_branch", "s_cbranch_scc0"]),
            st.integers(0, PLACES),
        ),
    ),
    min_size=PLACES,
    max_size=PLACES,
)


def executed(f: gcn.GcnFunction) -> set[tuple[int, int]]:
    """Returns every (instruction, operations outstanding before it) that a wavefront can reach."""
    seen, todo = set[tuple[int, int]](), [(0, 0)]
    while todo:
        at, outstanding = todo.pop()
        if (at, outstanding) not in seen:
            seen.add((at, outstanding))
            then = gcn.after(f.code[at], outstanding)
            todo += [(k, then) for k in gcn.successors(f, at)]
    return seen


@given(CODE)
def test_what_is_found_is_what_an_execution_can_do(code: list[str]) -> None:
    labelled = [line for k, c in enumerate(code) for line in (f".L{k}:", c)]
    text = HEAD.format(code="\n\t".join([*labelled, f".L{PLACES}:", "s_endpgm"]))
    (f,) = gcn.functions(text)
    wrong = {f.code[at].line for at, had in executed(f) if had & gcn.forbidden(f.code[at])}
    assert {fault.line for fault in gcn.faults(f)} == wrong


def assembly(
    kernel: Path, arch: str, *options: str, include: Path = INCLUDE
) -> list[gcn.GcnFunction]:
    """Compiles a kernel and returns its functions in assembly."""
    target = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib"]
    flags = ["-nogpuinc", "-O3", "-std=c++17", "-S", f"-I{include}", *options]
    command = [str(CLANG), *target, *flags, "-o", "-", str(kernel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(gcn.functions(done.stdout))


def kernel_of(name: str, transport: Transport, place: Path) -> Path:
    """Writes an example's HIP source."""
    plan = driver.compile_text(
        transfer.read(FOLDER / f"{name}.rccl"), Options(transport=transport)
    ).plan
    path = place / f"{name}.hip"
    path.write_text(source.hip(plan))
    return path


def check(found: list[gcn.GcnFunction]) -> None:
    """Checks that the functions have barriers and write-backs, and no fault."""
    for wanted in ("s_barrier", "buffer_wbl2"):
        assert sum(f.count(wanted) for f in found) >= 3, wanted
    faults = [fault for f in found for fault in gcn.faults(f)]
    assert not faults, "\n".join(map(str, faults))


Case = tuple[str, Transport, str]
EVERY = [(name, transport, dtype) for name in EXAMPLES for transport in CHOICES for dtype in DTYPES]
QUICK = [("sendrecv", Transport.DIRECT, "float32"), ("ring_allreduce", Transport.STAGED, "float32")]
CASES = [*QUICK, *(case for case in some(EVERY, 7) if case not in QUICK)]


@pytest.mark.slow
@needs_clang
@pytest.mark.parametrize(
    "case",
    [case if case in QUICK else slow(case) for case in CASES],
    ids=lambda case: f"{case[0]}-{case[1].name.lower()}-{case[2]}",
)
def test_emitted_kernels_keep_the_order(case: Case, tmp_path: Path) -> None:
    """For one architecture, in turn."""
    name, transport, dtype = case
    arch = ARCHITECTURES[CASES.index(case) % len(ARCHITECTURES)]
    check(assembly(kernel_of(name, transport, tmp_path), arch, f"-DHCCC_DTYPE={dtype}"))


@pytest.mark.slow
@needs_clang
@pytest.mark.parametrize("arch", [slow("gfx90a"), "gfx942"])
def test_packets_are_neither_written_back_nor_fenced(arch: str, tmp_path: Path) -> None:
    """They are accesses of 8 bytes, many of which are under way at the same time."""
    text = transfer.read(FOLDER / "direct_allreduce.rccl")
    path = tmp_path / "packets.hip"
    path.write_text(source.hip(driver.compile_text(text, Options(protocol="ll")).plan))
    found = assembly(path, arch)
    assert not any(f.count("buffer_wbl2") for f in found)
    barriers = [x for f in found for x in gcn.faults(f) if x.name == "s_barrier"]
    assert not barriers and any(f.count("s_barrier") for f in found)
    most = 0
    for f in found:
        loads = 0
        for one in f.code:
            loads = loads + 1 if one.name == "global_load_dwordx2" else loads
            loads = 0 if one.name == "s_waitcnt" else loads
            most = max(most, loads)
    assert most >= 14


@pytest.mark.slow
@needs_clang
@pytest.mark.parametrize("inline", [0, 1])
def test_one_device_keeps_the_order(inline: int, tmp_path: Path) -> None:
    path = kernel_of("ring_allreduce", Transport.DIRECT, tmp_path)
    path.write_text(path.read_text().replace("#define HCCC_INLINE ", "#define INLINE_WAS "))
    options = ["-DHCCC_SYSTEM_SCOPE=0", f"-DHCCC_INLINE={inline}"]
    check(assembly(path, "gfx942", *options))


RELEASE = """  __builtin_amdgcn_fence(__ATOMIC_RELEASE, HCCC_FENCE_SCOPE);
  hccc_drain();
  hccc_st_relaxed(flag, value);"""
LANGUAGE_RELEASE = "  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, HCCC_SCOPE);"


@pytest.mark.slow
@needs_clang
@pytest.mark.parametrize("arch", [slow("gfx90a"), "gfx942"])
@pytest.mark.parametrize(
    ("mended", "naive", "wanted"),
    [
        (
            "  hccc_drain();\n  hccc_barrier_shared();",
            "  hccc_barrier_shared();",
            "a store at s_barrier",
        ),
        (RELEASE, LANGUAGE_RELEASE, "a write-back at flat_store_dword"),
    ],
    ids=["barrier", "release"],
)
def test_what_the_language_offers_breaks_a_law(
    mended: str, naive: str, wanted: str, arch: str, tmp_path: Path
) -> None:
    include = Path(shutil.copytree(INCLUDE, tmp_path / "include"))
    header = include / "hccc" / "port_hip.h"
    assert header.read_text().count(mended) == 1
    header.write_text(header.read_text().replace(mended, naive))
    path = kernel_of("sendrecv", Transport.STAGED, tmp_path)
    faults = [x for f in assembly(path, arch, include=include) for x in gcn.faults(f)]
    assert wanted in {f"{fault.outstanding} at {fault.name}" for fault in faults}
