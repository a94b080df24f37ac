"""What kernels for NVIDIA cost, counted in their machine code; what tests/sass.py counts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.emit.kernels import source
from hccc.ir.transport import Transport
from hccc.lang.transfer import load as transfer
from hccc.sim import meeting
from hccc.testing.clusters import cluster
from tests import sass
from tests.runtime.handwritten import INCLUDE
from tests.runtime.test_gpu_compile import kernel_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

needs_tools = pytest.mark.skipif(
    shutil.which("nvcc") is None or sass.disassembler() is None, reason="no nvcc or no nvdisasm"
)

TEXT = """
.text.k:
.L_x_0:
        /*0000*/                   LDC.64 R2, c[0x0][0x210] ;
        /*0010*/                   LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.128 R8, desc[UR4][R4.64] ;
        /*0030*/                   LDG.E.128 R12, desc[UR4][R4.64+0x10] ;
        /*0040*/                   FADD R8, R8, R12 ;
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R8 ;
        /*0060*/                   ISETP.NE.AND P0, PT, R12, RZ, PT ;
        /*0070*/               @P0 BRA `(.L_x_0) ;
        /*0080*/                   LDG.E R6, desc[UR4][R2.64] ;
        /*0090*/                   EXIT ;
"""


def test_bytes_in_flight_end_with_the_first_use() -> None:
    (f,) = sass.parsed(TEXT)
    (loop,) = f.moving()
    assert (loop.instructions, loop.wide_loads, loop.wide_stores, loop.local) == (8, 2, 1, 0)
    assert loop.in_flight == 32  # the pointer's 8 bytes have arrived by then
    (early,) = sass.parsed(TEXT.replace("R4.64+0x10]", "R8.64]"))
    assert early.moving()[0].in_flight == 16


def test_a_load_waits_for_its_address_and_for_the_branch_before_it() -> None:
    (f,) = sass.parsed(TEXT)
    assert sass.depths(f) == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2]


def test_what_only_a_long_wait_executes_does_not_count() -> None:
    slow = TEXT.replace("FADD R8, R8, R12", "NANOSLEEP 0x20")
    (f,) = sass.parsed(slow)
    assert sass.depths(f)[:8] == [0] * 8


def compiled(
    text: str, place: Path, *options: str, arch: str = "sm_90"
) -> tuple[sass.Function, sass.Used]:
    """Compiles a kernel; returns its code and what the module uses."""
    source, cubin = place / "kernel.cu", place / "kernel.cubin"
    source.write_text(text)
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
    command += [f"-I{INCLUDE}", *options, str(source), "-o", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    kernel = next(f for f in sass.functions(cubin) if f.name == "hccc_kernel")
    return kernel, sass.used(done.stderr)


@pytest.mark.slow
@needs_tools
def test_a_launch_is_entered_by_few_loads_one_after_the_other(tmp_path: Path) -> None:
    """The first fence is that of the notice; those after it let blocks go and raise a signal."""
    kernel, used = compiled(kernel_text(8, 8, inline=1), tmp_path)
    depth = sass.depths(kernel)
    fences = [at for at, i in enumerate(kernel.code) if i.base == "MEMBAR"]
    announced = next(at for at in range(fences[0], len(kernel.code)) if kernel.is_flag_store(at))
    assert depth[announced] <= 6
    assert len(fences) == 6  # notice, go; a signal, rarely an extension; finished, done
    assert kernel.count("STS") == 1, "each thread stores one operand's place"
    polls = sum(i.name.startswith("LDG.E.STRONG") for i in kernel.code[: fences[0]])
    assert polls <= 4, "before the notice only a block that waits to go polls"
    check(kernel, used, 8, 66)


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize(
    ("channels", "loads", "fences", "simulated"),
    [(1, 10, 2, meeting.ALONE), (2, 10, 4, meeting.SHARED)],
)
def test_ranks_meet_by_few_accesses_one_after_the_other(
    channels: int, loads: int, fences: int, simulated: meeting.AccessChain, tmp_path: Path
) -> None:
    """A rank of one block, and of two: loads to the end of the launch, and fences but for the
    signal's, as the simulator counts them. Behind the end lies what only an extension of a wait
    executes."""
    text = kernel_text(8, 8, inline=1).replace("HCCC_CHANNELS 2", f"HCCC_CHANNELS {channels}")
    kernel, _ = compiled(text, tmp_path)
    end = max(at for at, i in enumerate(kernel.code) if i.base == "EXIT")
    counted = max(sass.depths(kernel)), sum(i.base == "MEMBAR" for i in kernel.code[:end]) - 1
    assert counted[0] <= loads
    assert counted[1] == fences
    assert counted == simulated


def check(kernel: sass.Function, used: sass.Used, sources: int, most: int) -> None:
    """Checks a kernel of one primitive: its loop's instructions, what is in flight, registers."""
    (loop,) = (loop for loop in kernel.moving() if not loop.kept)
    assert loop.instructions <= most
    assert loop.in_flight >= (144 if sources == 9 else 128)
    assert loop.local == 0 and used.spills == 0
    assert used.registers <= 128
    # What the loop leaves over is one turn whose packs may be missing.
    after = kernel.code[loop.end :]
    packs = sum(i.loads and i.words == 4 for i in after)
    assert packs * 16 >= (128 if loop.wide_loads > sources else 0)


def check_shifted(kernel: sass.Function, sources: int, destinations: int) -> None:
    """Checks the loops of places that are not alike modulo 16: of the primitive, and of the copies
    to destinations that are not like the first. Two loads for 16 bytes that are aligned by the
    destination, and none that are shorter, so 64 bytes in flight are the words around them."""
    loops = [loop for loop in kernel.moving() if loop.kept]
    assert len(loops) == 1 + (destinations > 1)
    for loop in loops:
        assert loop.kept == loop.wide_loads == 8 and loop.in_flight == 128
        assert loop.narrow == loop.local == 0
    assert [loop.wide_stores for loop in loops if loop.wide_stores == 4] or sources > 1


BODIES = [
    ("float32", 1, 1, 24),
    ("float32", 2, 1, 44),
    ("float32", 9, 1, 58),
    ("bfloat16", 2, 1, 144),
    ("bfloat16", 8, 8, 165),
    ("bfloat16", 9, 9, 185),
    ("float16", 4, 1, 146),
    ("float16", 8, 8, 165),
]
ARCHS = ["sm_90", "sm_80", "sm_100"]


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "sources", "destinations", "most"), BODIES)
def test_bodies_keep_many_bytes_in_flight(
    dtype: str, sources: int, destinations: int, most: int, arch: str, tmp_path: Path
) -> None:
    text = kernel_text(sources, destinations, inline=1)
    kernel, used = compiled(text, tmp_path, f"-DHCCC_DTYPE={dtype}", arch=arch)
    check(kernel, used, sources, most)
    check_shifted(kernel, sources, destinations)


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("sources", "destinations"), [(2, 1), (8, 8)])
def test_bodies_that_are_functions_load_by_known_addresses(
    sources: int, destinations: int, dtype: str, tmp_path: Path
) -> None:
    """Parameters from shared memory, and tables and data from global memory: no load is generic."""
    text = kernel_text(sources, destinations, inline=0)
    kernel, used = compiled(text, tmp_path, f"-DHCCC_DTYPE={dtype}")
    names = [i.base for i in kernel.called("hccc_execute_body")]
    assert {"LDS", "LDG"} <= set(names) and "LD" not in names
    assert used.spills == 0 and used.registers <= 128
    assert all(loop.local == 0 for loop in kernel.moving())


@needs_tools
@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_100", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype", ["bfloat16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float32", "int64"))]
)
def test_a_switch_has_eight_loads_in_flight(dtype: str, arch: str, tmp_path: Path) -> None:
    """Its loop loads 8 times 16 bytes of all ranks before it stores the first, without spills."""
    text = transfer.read(EXAMPLES / "direct_allreduce.rccl")
    chosen = Options(transport=Transport.MULTICAST, bits="any", tune="off")
    plan = driver.compile_text(text, chosen, cluster("define node1 = 8\ndefine device = H100")).plan
    kernel, used = compiled(source.cuda(plan), tmp_path, f"-DHCCC_DTYPE={dtype}", arch=arch)
    names = [i.name for i in kernel.code]
    loads = [at for at, name in enumerate(names) if name.startswith("LDGMC")]
    each = 2 if dtype == "int64" else 1  # words that one load reduces: of 64 bits alone
    stores = [at for at, n in enumerate(names) if n.startswith("STG.E.128") and "STRONG" in n]
    first = next(at for at in stores if at > loads[0])
    assert sum(at < first for at in loads) >= 8 * each
    assert used.spills == 0 and used.registers <= 128
    assert len(loads) == 16 * each and len(stores) == 16, "a loop, and the turn that is left over"


@needs_tools
@pytest.mark.parametrize("fuse", ["auto", pytest.param("full", marks=pytest.mark.slow)])
def test_packets_have_no_fence_and_all_are_polled_at_once(fuse: str, tmp_path: Path) -> None:
    """The only barrier is that of the end. Of 8 sources one is in the rank's own memory."""
    text = transfer.read(EXAMPLES / "direct_allreduce.rccl")
    plan = driver.compile_text(text, Options(protocol="ll", fuse=fuse)).plan
    kernel, used = compiled(source.cuda(plan), tmp_path)
    assert kernel.count("MEMBAR") == 0 and kernel.count("BAR") <= 2 and used.spills == 0
    polls = [loop for loop in kernel.moving() if loop.wide_loads]
    most = max(loop.wide_loads for loop in polls)
    assert most == 7 and all(loop.in_flight == 16 * loop.wide_loads for loop in polls)
    assert all(loop.instructions <= 90 for loop in polls)  # with what a long wait takes


@needs_tools
@pytest.mark.slow
def test_many_primitives_spill_little(tmp_path: Path) -> None:
    text = transfer.read(EXAMPLES / "hm_allreduce.rccl")
    plan = driver.compile_text(text, Options()).plan
    kernel, used = compiled(source.cuda(plan), tmp_path)
    assert used.spills <= 128 and used.registers <= 128
    assert all(loop.local == 0 for loop in kernel.moving())
