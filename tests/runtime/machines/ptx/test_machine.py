"""The machine for PTX, on texts written by hand: what it computes, orders, finds and refuses."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.machines.arrays import Arrays
from hccc.runtime.machines.kernel import MachineFinding, MachineLaunch
from hccc.runtime.machines.ptx.machine import PtxKernel
from hccc.runtime.machines.ptx.mutants import mutants

HEAD = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .b64 k_param_0, .param .b64 k_param_1, .param .b64 k_param_2)
{
  .reg .pred %p<4>;
  .reg .b16 %rs<4>;
  .reg .b32 %r<10>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<8>;
  .file 1 "kernel.cu"
  ld.param.u64 %rd1, [k_param_0];
  ld.param.u64 %rd2, [k_param_1];
  ld.param.u64 %rd3, [k_param_2];
  mov.u32 %r1, %tid.x;
"""

# Rank 0 writes data, rank 1 reads them once the flag is up; thread 0 of each has the flag.
MESSAGE = (
    HEAD
    + """
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd5, %rd1, %rd4;
  setp.ne.s32 %p1, %r1, 0;
  setp.eq.s64 %p2, %rd3, 0;
  @%p2 bra $reader;
  .loc 1 10 3
  add.s32 %r2, %r1, 100;
  st.global.u32 [%rd5], %r2;
  bar.sync 0;
  @%p1 bra $end;
  .loc 1 12 3
  st.release.sys.global.u32 [%rd2], 1;
  bra.uni $end;
$reader:
  @%p1 bra $meet;
$poll:
  .loc 1 20 3
  ld.acquire.sys.global.u32 %r3, [%rd2];
  setp.eq.s32 %p3, %r3, 0;
  @%p3 bra $poll;
$meet:
  bar.sync 0;
  .loc 1 22 3
  ld.global.u32 %r4, [%rd5];
  st.global.u32 [%rd5+512], %r4;
$end:
  ret;
}
"""
)
SEEDS = range(1, 17)


def run(
    text: str, memory: Arrays, params: Sequence[Sequence[int]], threads: int = 1, seed: int = 1
) -> MachineFinding | None:
    """Runs a kernel once for each list of parameters, each on a GPU of its own."""
    grids = [
        MachineLaunch(struct.pack("3Q", *([*given, 0, 0, 0][:3])), 1, 1, threads, rank)
        for rank, given in enumerate(params)
    ]
    return PtxKernel(text, "k").run(grids, memory.regions(), seed)


def message(text: str, seed: int) -> tuple[MachineFinding | None, Any]:
    """Runs MESSAGE with 64 threads a rank; returns the fault, and the words rank 1 has read."""
    memory = Arrays()
    data, flag = memory.zeros(256, np.uint32), memory.zeros(32, np.uint32)
    here = data.data.ptr, flag.data.ptr
    found = run(text, memory, [(*here, 1), (*here, 0)], 64, seed)
    return found, data[128:192]


def test_what_is_ordered_arrives() -> None:
    for seed in SEEDS:
        found, read = message(MESSAGE, seed)
        assert found is None
        assert read.tolist() == list(range(100, 164))


def test_all_that_orders_is_missed() -> None:
    each = list(mutants(MESSAGE))
    assert [m.was.split(".")[0:2] for m in each] == [
        ["bar", "sync 0;"],
        ["st", "release"],
        ["ld", "acquire"],
        ["bar", "sync 0;"],
    ]
    told = [next(f for s in SEEDS if (f := message(m.text, s)[0])) for m in each]
    _, release, acquire, _ = told
    assert "nothing has published" in release.what
    assert release.source[1] == "kernel.cu:22" and release.writer[1] == "kernel.cu:10"
    assert "from before" in acquire.what and acquire.who[0] == 1
    error = release.error().problem
    assert error.code == "E488" and "rank 1, block 0" in error.message


def test_scopes_are_told_apart() -> None:
    narrow = MESSAGE.replace("st.release.sys", "st.release.gpu")
    assert any(message(narrow, seed)[0] for seed in SEEDS)  # ranks are GPUs
    fenced = MESSAGE.replace("st.release.sys", "fence.acq_rel.sys;\n  st.relaxed.sys")
    assert not any(message(fenced, seed)[0] for seed in SEEDS)


def test_atomics_of_many_threads_lose_nothing() -> None:
    text = HEAD + "  atom.global.sys.add.u32 %r2, [%rd1], 3;\n  ret;\n}\n"
    memory = Arrays()
    count = memory.zeros(32, np.uint32)
    assert run(text, memory, [[count.data.ptr]] * 3, 70) is None
    assert count[0] == 3 * 3 * 70


BODIES = {
    "ld.global.f32 %f1, [%rd1]; add.f32 %f1, %f1, 0f3F800000; st.global.f32 [%rd2], %f1;": 2.5,
    "mov.f32 %f1, 0f3FC00000; fma.rn.f32 %f1, %f1, %f1, %f1; st.global.f32 [%rd2], %f1;": 3.75,
    "mov.u32 %r2, -7; cvt.rn.f32.s32 %f1, %r2; st.global.f32 [%rd2], %f1;": -7.0,
    "mov.f32 %f1, 0fC0200000; cvt.rzi.s32.f32 %r2, %f1; cvt.rn.f32.s32 %f1, %r2; "
    "st.global.f32 [%rd2], %f1;": -2.0,
    "mov.f32 %f1, 0f3FA00000; cvt.rn.f16.f32 %rs1, %f1; cvt.f32.f16 %f2, %rs1; "
    "st.global.f32 [%rd2], %f2;": 1.25,
    "mov.u32 %r2, 0x12345678; prmt.b32 %r3, %r2, 0, 0x4410; cvt.rn.f32.u32 %f1, %r3; "
    "st.global.f32 [%rd2], %f1;": float(0x5678),
    "mov.u32 %r2, 0x1ab; mov.u32 %r3, 0xff00ff; bfi.b32 %r4, %r2, %r3, 4, 8; "
    "cvt.rn.f32.u32 %f1, %r4; st.global.f32 [%rd2], %f1;": float(0xFF0ABF),
    "mov.u32 %r2, 40; mov.u32 %r3, 1; shl.b32 %r3, %r3, %r2; cvt.rn.f32.u32 %f1, %r3; "
    "st.global.f32 [%rd2], %f1;": 0.0,
    "mov.s32 %r2, -9; shr.s32 %r2, %r2, 1; cvt.rn.f32.s32 %f1, %r2; st.global.f32 [%rd2], %f1;": -5,
    "setp.lt.s32 %p1, %r1, 5; selp.f32 %f1, 0f40000000, 0f00000000, %p1; "
    "@!%p1 bra $x; st.global.f32 [%rd2], %f1; $x:": 2.0,
}


@pytest.mark.parametrize("body", BODIES)
def test_arithmetic(body: str) -> None:
    memory = Arrays()
    given, made = memory.asarray(np.full(4, 1.5, "f4")), memory.zeros(4, np.float32)
    assert run(f"{HEAD}{body}\nret;\n}}", memory, [(given.data.ptr, made.data.ptr)]) is None
    assert made[0] == BODIES[body]


def test_vectors_and_functions() -> None:
    function = """
.func (.param .b32 r) twice(.param .b32 a)
{ .reg .b32 %r<3>; ld.param.u32 %r1, [a]; add.s32 %r2, %r1, %r1; st.param.b32 [r+0], %r2; ret; }
"""
    body = """
  ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];
  { .param .b32 param0; st.param.b32 [param0+0], %r3; .param .b32 retval0;
  call.uni (retval0), twice, (param0);
  ld.param.b32 %r6, [retval0+0]; }
  st.global.v2.u32 [%rd2], {%r6, %r5};
  ret;
}"""
    memory = Arrays()
    given, made = memory.asarray(np.arange(1, 5, dtype="u4")), memory.zeros(4, np.uint32)
    text = HEAD.replace(".visible", f"{function}.visible") + body
    assert run(text, memory, [(given.data.ptr, made.data.ptr)]) is None
    assert made.tolist() == [4, 4, 0, 0]


def fault(body: str, address: int = 0) -> MachineFinding:
    memory = Arrays()
    data = memory.zeros(8, np.uint32)
    found = run(f"{HEAD}{body}\nret;\n}}", memory, [(data.data.ptr + address, 0)], 2)
    assert found is not None
    return found


def test_memory_of_nobody_is_told() -> None:
    found = fault(".loc 1 7 1\n  st.global.u32 [%rd1+32], 1;")
    assert "nobody's" in found.what and found.source[1] == "kernel.cu:7"
    assert "nobody's" in fault("ld.global.u32 %r2, [%rd2];").what
    assert "divide" in fault("ld.global.u64 %rd4, [%rd1];", 4).what


def test_what_stands_still_is_told() -> None:
    waits = "$x: ld.relaxed.sys.global.u32 %r2, [%rd1]; setp.eq.s32 %p1, %r2, 0; @%p1 bra $x;"
    assert "nothing can go on" in fault(f"setp.eq.s32 %p1, %r1, 0; @%p1 bra $y; {waits} $y:").what


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("mov.u32 %r2, 1;\n  frobnicate.u32 %r2, %r1;", "`frobnicate.u32`"),
        ("ld.weird.global.u32 %r2, [%rd1];", "`.weird`"),
        ("mov.u32 %r2, %clusterid.x;", "%clusterid.x"),
        ("bra $nowhere;", "$nowhere"),
        ("call.uni other, ();", "other"),
    ],
)
def test_what_is_not_known_is_refused_by_name_and_line(body: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        PtxKernel(f"{HEAD}{body}\nret;\n}}", "k")
    assert refused.value.problem.code == "E487"
    assert said in refused.value.problem.message
    line = len(HEAD.splitlines()) + body.count("\n") + 1
    assert f"line {line}:" in refused.value.problem.message
