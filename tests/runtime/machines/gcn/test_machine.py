"""The machine for AMD, on texts written by hand: what it computes, orders, finds and refuses."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.machines.arrays import Arrays
from hccc.runtime.machines.gcn.machine import GcnKernel
from hccc.runtime.machines.gcn.mutants import mutants
from hccc.runtime.machines.kernel import MachineFinding, MachineLaunch

pytestmark = pytest.mark.slow  # the machine takes half a minute to compile

# s[0:1] are the parameters' address; s[4:5], s[6:7] and s[8:9] become the parameters.
TEXT = """
	.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
	.text
k:
	.file	1 "kernel.hip"
	s_load_dwordx4 s[4:7], s[0:1], 0x0
	s_load_dwordx2 s[8:9], s[0:1], 0x10
	s_waitcnt lgkmcnt(0)
	v_lshlrev_b32_e32 v1, 2, v0
{body}
	s_endpgm
	.section	.rodata,"a",@progbits
table:
	.short	7
	.short	65535
	.text
	.amdhsa_kernel k
		.amdhsa_group_segment_fixed_size 1024
		.amdhsa_private_segment_fixed_size 64
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_next_free_vgpr 24
		.amdhsa_accum_offset 16
	.end_amdhsa_kernel
"""

# Rank 0 writes data, rank 1 reads them once the flag is up; the first thread of each has the flag.
# The writer stays for a while: the end of a launch publishes all.
MESSAGE = """
	s_cmp_eq_u64 s[8:9], 0
	s_cbranch_scc1 .Lreader
	v_add_u32_e32 v2, 0x64, v0
	.loc	1 10 3
	global_store_dword v1, v2, s[4:5]
	s_waitcnt vmcnt(0)
	s_barrier
	v_cmp_eq_u32_e32 vcc, 0, v0
	s_and_saveexec_b64 s[10:11], vcc
	s_cbranch_execz .Lend
	buffer_wbl2 sc0 sc1
	s_waitcnt vmcnt(0)
	v_mov_b32_e32 v3, 0
	v_mov_b32_e32 v4, 1
	.loc	1 12 3
	global_store_dword v3, v4, s[6:7] sc0 sc1
	s_mov_b32 s12, 40
.Lstay:
	s_sleep 1
	s_add_i32 s12, s12, -1
	s_cmp_lg_u32 s12, 0
	s_cbranch_scc1 .Lstay
	s_branch .Lend
.Lreader:
	v_cmp_eq_u32_e32 vcc, 0, v0
	s_and_saveexec_b64 s[10:11], vcc
	s_cbranch_execz .Lmeet
	v_mov_b32_e32 v3, 0
.Lpoll:
	.loc	1 20 3
	global_load_dword v4, v3, s[6:7] sc0 sc1
	s_waitcnt vmcnt(0)
	v_cmp_eq_u32_e32 vcc, 0, v4
	s_cbranch_vccnz .Lpoll
	buffer_inv sc0 sc1
.Lmeet:
	s_mov_b64 exec, s[10:11]
	s_barrier
	.loc	1 22 3
	global_load_dword v5, v1, s[4:5]
	s_waitcnt vmcnt(0)
	global_store_dword v1, v5, s[4:5] offset:1024
.Lend:
"""
SEEDS = range(1, 17)


def text_of(body: str, arch: str = "gfx942") -> str:
    """Returns a kernel with this code."""
    return TEXT.format(body=body, arch=arch)


def run(
    text: str, memory: Arrays, params: Sequence[Sequence[int]], threads: int = 64, seed: int = 1
) -> MachineFinding | None:
    """Runs a kernel once for each list of parameters, each on a GPU of its own."""
    grids = [
        MachineLaunch(struct.pack("3Q", *([*given, 0, 0, 0][:3])), 1, 1, threads, rank)
        for rank, given in enumerate(params)
    ]
    return GcnKernel(text, "k").run(grids, memory.regions(), seed)


def message(text: str, seed: int) -> tuple[MachineFinding | None, Any]:
    """Runs MESSAGE with 2 waves a rank; returns the fault, and the words rank 1 has read."""
    memory = Arrays()
    data, flag = memory.zeros(512, np.uint32), memory.zeros(32, np.uint32)
    here = data.data.ptr, flag.data.ptr
    found = run(text, memory, [(*here, 1), (*here, 0)], 128, seed)
    return found, data[256:384]


def found_of(body: str, seeds: Sequence[int] = SEEDS) -> MachineFinding | None:
    """Returns the first fault of a kernel with this code that a seed finds."""

    def one(seed: int) -> MachineFinding | None:
        memory = Arrays()
        data = memory.zeros(1024, np.uint32)
        return run(text_of(body), memory, [(data.data.ptr, data.data.ptr + 2048)], 128, seed)

    return next(filter(None, map(one, seeds)), None)


def test_what_is_ordered_arrives() -> None:
    for seed in SEEDS:
        found, read = message(text_of(MESSAGE), seed)
        assert found is None
        assert read.tolist() == list(range(100, 228))


def test_all_that_orders_is_missed() -> None:
    each = [m for m in mutants(text_of(MESSAGE)) if "lgkmcnt" not in m.was]
    assert [m.was for m in each] == [
        *("s_waitcnt vmcnt(0)", "s_barrier", "buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0)"),
        *("s_waitcnt vmcnt(0)", "buffer_inv sc0 sc1", "s_barrier", "s_waitcnt vmcnt(0)"),
    ]
    told = [next(f for s in SEEDS if (f := message(m.text, s)[0])) for m in each]
    store, _, write_back, _, poll, invalidation, _, load = told
    assert "nothing has published" in store.what and "nothing has published" in write_back.what
    assert write_back.source[1] == "kernel.hip:22" and write_back.writer[1] == "kernel.hip:10"
    assert "from before" in invalidation.what and invalidation.who[0] == 1
    assert poll.what.endswith("a register that a load has yet to write")
    assert load.source[1] == "kernel.hip:22" and not load.writer
    error = write_back.error().problem
    assert error.code == "E488" and "rank 1, block 0, wave" in error.message


def test_a_device_scope_does_not_reach_another() -> None:
    narrow = text_of(MESSAGE.replace("buffer_wbl2 sc0 sc1", "buffer_wbl2 sc1"))
    assert any(message(narrow, seed)[0] for seed in SEEDS)  # ranks are GPUs


SHARED = """
	v_mov_b32_e32 v2, 5
	ds_write_b32 v1, v2
	s_waitcnt lgkmcnt(0)
	s_barrier
	v_sub_u32_e32 v3, 0x1fc, v1
	ds_read_b32 v4, v3
	s_waitcnt lgkmcnt(0)
	v_cmp_ne_u32_e32 vcc, 5, v4
	s_cbranch_vccz .Lright
	s_trap 2
.Lright:
"""


def test_shared_memory_is_waited_for() -> None:
    assert found_of(SHARED) is None
    first = SHARED.replace("\ts_waitcnt lgkmcnt(0)\n", "", 1)
    assert (found := found_of(first)) and "stops" in found.what
    unmet = SHARED.replace("\ts_barrier\n", "")
    assert (found := found_of(unmet)) and "stops" in found.what


# The second wave writes what the first one reads before the barrier.
OVERWRITTEN = """
	v_readfirstlane_b32 s12, v0
	s_cmp_lg_u32 s12, 0
	s_cbranch_scc1 .Lsecond
	global_load_dword v2, v1, s[4:5]
	s_waitcnt vmcnt(0)
	s_barrier
	s_nop 0
	s_waitcnt vmcnt(0)
	s_branch .Lend
.Lsecond:
	s_barrier
	global_store_dword v1, v0, s[4:5] offset:-256
.Lend:
"""


def test_a_load_is_waited_for_before_another_overwrites_it() -> None:
    assert found_of(OVERWRITTEN) is None
    unwaited = OVERWRITTEN.replace("\ts_waitcnt vmcnt(0)\n\ts_barrier", "\ts_barrier")
    assert (found := found_of(unwaited)) and "nothing orders them" in found.what


def test_stores_of_one_wave_arrive_in_any_order() -> None:
    """Two packets' halves, each with its flag: a reader may see the second before the first."""
    body = """
	s_cmp_eq_u64 s[8:9], 0
	s_cbranch_scc1 .Lreader
	v_mov_b32_e32 v2, 1
	global_store_dword v1, v2, s[4:5] sc0 sc1
	global_store_dword v1, v2, s[4:5] offset:1024 sc0 sc1
	s_branch .Lend
.Lreader:
	global_load_dword v3, v1, s[4:5] offset:1024 sc0 sc1
	s_waitcnt vmcnt(0)
	global_load_dword v4, v1, s[4:5] sc0 sc1
	s_waitcnt vmcnt(0)
	v_cmp_lt_u32_e32 vcc, v4, v3
	s_cbranch_vccz .Lend
	s_trap 2
.Lend:
"""
    early = 0
    for seed in range(1, 200):
        memory = Arrays()
        data = memory.zeros(512, np.uint32)
        here = data.data.ptr, 0
        early += run(text_of(body), memory, [(*here, 1), (*here, 0)], 64, seed) is not None
    assert 0 < early < 199


def computed(body: str, words: Sequence[int], arch: str = "gfx942") -> list[int]:
    """Runs code on v2 to v5, all lanes of one alike; returns what lane 9 has after."""
    memory = Arrays()
    out = memory.zeros(256, np.uint32)
    loads = "".join(f"\tv_mov_b32_e32 v{2 + k}, {word:#x}\n" for k, word in enumerate(words))
    stores = "".join(
        f"\tglobal_store_dword v1, v{2 + k}, s[4:5] offset:{256 * k}\n" for k in range(4)
    )
    assert run(text_of(loads + body + stores, arch), memory, [(out.data.ptr,)]) is None
    return [int(out[64 * k + 9]) for k in range(4)]


ONE, TWO = 0x3F800000, 0x40000000
COMPUTED = {  # code, then v2 to v5, and what v2 is after
    "v_add_f32_e64 v2, |v2|, -v3": ([ONE | 1 << 31, TWO], [ONE | 1 << 31]),
    "v_add_f64 v[2:3], v[2:3], 1.0": ([0, 0x3FF00000], [0, 0x40000000]),
    "v_pk_add_f32 v[2:3], v[2:3], v[4:5] op_sel_hi:[1,0]": (
        [ONE, TWO, ONE, 0],
        [TWO, 0x40400000],
    ),
    "v_pk_add_u16 v2, v2, v3 op_sel_hi:[1,0]": ([0xFFFF0001, 0x00050002], [0x00010003]),
    "v_min_i16_sdwa v2, sext(v3), sext(v4) dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE "
    "src0_sel:BYTE_0 src1_sel:BYTE_3": ([0x11223344, 0x7F, 0x80 << 24], [0x11228044]),
    "v_cvt_f32_f16_sdwa v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1": (
        [0, 0x3C000000],
        [ONE],
    ),
    "v_cvt_f16_f32_sdwa v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD": (
        [5, ONE],
        [0x3C000000],
    ),
    "v_add_u16_e32 v2, v2, v3": ([0xFFFFFFFF, 2], [1]),
    "v_fma_mixlo_f16 v2, v3, v4, 0 op_sel_hi:[1,0,0]": ([0xABCD0000, 0x4000, ONE], [0xABCD4000]),
    "v_perm_b32 v2, v2, v3, v4": ([0x33221100, 0x77665544, 0x0C040003], [0x00004477]),
    "v_mad_u64_u32 v[2:3], s[10:11], v2, v3, v[4:5]": ([1 << 31, 4, 1, 0], [1, 2]),
    "v_mad_i64_i32 v[2:3], s[10:11], v2, -1, v[4:5]": ([7, 0, 0, 0], [0xFFFFFFF9, 0xFFFFFFFF]),
    "v_mul_hi_i32_i24_e32 v2, v2, v3": ([0x00FFFFFD, 5], [0xFFFFFFFF]),
    "v_mul_hi_u32_u24_e32 v2, v2, v3": ([0xFFFFFFFF, 0x00FFFFFF], [0xFFFF]),
    "v_min3_i16 v2, v2, v3, v4 op_sel:[0,0,1,0]": ([5, 0xFFFE, 0xFFFD << 16], [0xFFFD]),
    "v_bfe_i32 v2, v2, 4, 4": ([0x80], [0xFFFFFFF8]),
    "v_alignbit_b32 v2, v2, v3, 8": ([0x12, 0x345678AB], [0x12345678]),
    "v_ldexp_f64 v[2:3], 1.0, 3": ([0, 0], [0, 0x40200000]),
    "v_sub_u32_e64 v2, v2, v3 clamp": ([3, 5], [0]),
    "v_subrev_co_u32_e32 v2, vcc, v2, v3": ([3, 5], [2]),
    "v_lshl_add_u64 v[2:3], v[2:3], 2, v[4:5]": ([1 << 31, 0, 3, 1], [3, 3]),
    "v_cmp_lt_f32_e64 s[10:11], v2, v3\n\tv_cndmask_b32_e64 v2, 7, 9, s[10:11]": ([ONE, TWO], [9]),
    "v_accvgpr_write_b32 a3, v2\n\tv_accvgpr_read_b32 v3, a3": ([8], [8, 8]),
    "v_swap_b32 v2, v3": ([1, 2], [2, 1]),
    "v_readlane_b32 s10, v0, 33\n\tv_mov_b32_e32 v2, s10": ([0], [33]),
    "v_mov_b32_e32 v3, 0\n\tv_writelane_b32 v3, s0, 8\n\tv_mov_b32_e32 v2, v3": ([5], [0, 0]),
    "v_mov_b64_e32 v[2:3], 2.0": ([0, 0], [0, 0x40000000]),
    "s_movk_i32 s10, 0xfff0\n\ts_addk_i32 s10, 0x8\n\tv_mov_b32_e32 v2, s10": ([0], [0xFFFFFFF8]),
    "s_bfe_u32 s10, 0xabcd, 0x80004\n\tv_mov_b32_e32 v2, s10": ([0], [0xBC]),
    "scratch_store_dword off, v2, off offset:4\n\tscratch_load_ubyte v3, off, off offset:5\n"
    "\ts_waitcnt vmcnt(0)": ([0x1234], [0x1234, 0x12]),
    "ds_write_b16 v1, v2\n\tds_read_i16 v3, v1\n\ts_waitcnt lgkmcnt(0)": (
        [0x18001, 0],
        [0x18001, 0xFFFF8001],
    ),
    "s_getpc_b64 s[10:11]\n\ts_add_u32 s10, s10, table@rel32@lo+6\n"
    "\ts_addc_u32 s11, s11, table@rel32@hi+14\n\tv_mov_b32_e32 v6, 0\n"
    "\tglobal_load_short_d16_hi v2, v6, s[10:11]\n\ts_waitcnt vmcnt(0)": ([5], [0xFFFF0005]),
    "s_getpc_b64 s[12:13]\n.Lpost0:\n\ts_add_u32 s12, s12, (.Lfar-.Lpost0)&4294967295\n"
    "\ts_addc_u32 s13, s13, (.Lfar-.Lpost0)>>32\n\ts_swappc_b64 s[30:31], s[12:13]\n"
    "\ts_branch .Lback\n.Lfar:\n\tv_mov_b32_e32 v2, 4\n\ts_setpc_b64 s[30:31]\n.Lback:": ([0], [4]),
}


@pytest.mark.parametrize("code", COMPUTED)
def test_what_instructions_compute(code: str) -> None:
    given, after = COMPUTED[code]
    assert computed(f"\t{code}\n", [*given, 0, 0, 0, 0][:4])[: len(after)] == after


def test_a_flat_address_may_be_the_waves_own_memory() -> None:
    code = """
	scratch_store_dword off, v2, off offset:8
	s_mov_b64 s[10:11], src_private_base
	v_mov_b32_e32 v4, 8
	v_mov_b32_e32 v5, s11
	flat_load_dword v3, v[4:5]
	s_waitcnt vmcnt(0) lgkmcnt(0)
"""
    assert computed(code, [77, 0, 0, 0])[1] == 77


def test_a_flat_load_is_waited_for_with_both_counters() -> None:
    load = "\tv_mov_b32_e32 v4, s4\n\tv_mov_b32_e32 v5, s5\n\tflat_load_dword v3, v[4:5]\n"
    use = "\tv_mov_b32_e32 v6, v3\n"
    assert found_of(f"{load}\ts_waitcnt vmcnt(0) lgkmcnt(0)\n{use}") is None
    for half in ("vmcnt(0)", "lgkmcnt(0)"):
        assert (found := found_of(f"{load}\ts_waitcnt {half}\n{use}"))
        assert "has yet to write" in found.what


def test_a_wait_for_some_retires_the_oldest() -> None:
    loads = "".join(f"\tglobal_load_dword v{2 + k}, v1, s[4:5]\n" for k in range(2))
    assert found_of(f"{loads}\ts_waitcnt vmcnt(1)\n\tv_mov_b32_e32 v6, v2\n") is None
    assert found_of(f"{loads}\ts_waitcnt vmcnt(1)\n\tv_mov_b32_e32 v6, v3\n")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("\tglobal_load_dword v2, v1, s[0:1] offset:4095\n", "nobody's"),
        ("\tscratch_load_dword v2, off, off offset:61\n", "nobody's"),
        ("\tv_mov_b32_e32 v3, 0x3fd\n\tds_read_b32 v2, v3\n\ts_waitcnt lgkmcnt(0)\n", "nobody's"),
        ("\tglobal_atomic_add v1, v0, s[4:5] offset:2\n", "does not divide"),
        ("\ts_setpc_b64 s[4:5]\n", "nobody's"),
        ("\ts_trap 2\n", "stops"),
        (
            "\tv_readfirstlane_b32 s12, v0\n\ts_cmp_eq_u32 s12, 0\n\ts_cbranch_scc1 .Lout\n"
            "\ts_mov_b32 s13, 0\n.Lpoll:\n\ts_cmp_eq_u32 s13, 0\n\ts_sleep 1\n"
            "\ts_cbranch_scc1 .Lpoll\n.Lout:\n",
            "nothing can go on",
        ),
    ],
)
def test_faults_are_found(body: str, what: str) -> None:
    found = found_of(body, [1])
    assert found and what in found.what


def test_a_launch_says_how_large_it_is() -> None:
    """In the packet that starts it, and after the parameters."""
    of_packet = TEXT.replace("s[0:1]", "s[2:3]").replace(
        "\t\t.amdhsa_user", "\t\t.amdhsa_user_sgpr_dispatch_ptr 1\n\t\t.amdhsa_user"
    )
    body = """
	s_load_dword s10, s[0:1], 0x4
	s_load_dword s11, s[2:3], 0x24
	v_mov_b32_e32 v2, 0
	s_waitcnt lgkmcnt(0)
	v_mov_b32_e32 v4, s10
	v_mov_b32_e32 v5, s11
	global_store_dwordx2 v2, v[4:5], s[4:5]
"""
    memory = Arrays()
    data = memory.zeros(32, np.uint32)
    text = of_packet.format(body=body, arch="gfx942")
    assert run(text, memory, [(data.data.ptr,)], 96) is None
    assert data[:2].tolist() == [1 << 16 | 96, 1 << 16 | 96]


def test_atomics_of_many_waves_lose_nothing() -> None:
    memory = Arrays()
    counter = memory.zeros(32, np.uint32)
    body = "\tv_mov_b32_e32 v2, 0\n\tv_mov_b32_e32 v3, 3\n\tglobal_atomic_add v2, v3, s[4:5]\n"
    assert run(text_of(body), memory, [(counter.data.ptr,)] * 3, 100) is None
    assert counter[0] == 900


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("v_dance_b32 v0, v1", "`v_dance_b32`"),
        ("v_add_f32_dpp v0, v1, v2 row_shr:1", "`row_shr:1` of `v_add_f32_dpp`"),
        ("v_add_u32_e32 v0, nonsense, v1", "the operand nonsense"),
        ("s_branch .Lnowhere", "`s_branch` to .Lnowhere"),
        ("global_load_dword v0, v1, s[4:5] lds", "`lds` of `global_load_dword`"),
    ],
)
def test_what_is_not_known_is_named(code: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        GcnKernel(text_of(f"\t{code}\n"), "k")
    assert error.value.problem.code == "E487"
    assert said in error.value.problem.message and "line 10" in error.value.problem.message


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(UserError, match="there is no kernel other"):
        GcnKernel(text_of(""), "other")
