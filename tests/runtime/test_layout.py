"""layout.py and abi.py agree with layout.h and hccc.h."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.limits import MAX_RANKS
from hccc.ir.micro_batch import MOST_QUEUED_BATCHES
from hccc.ir.plan import MOST_BLOCKS
from hccc.ir.plan_check import MAX_CUSTOM_CHUNKS
from hccc.runtime.abi import (
    ABI,
    CallRecord,
    CommRecord,
    FaultRecord,
    LocalRecord,
    Params,
    ProxyRingRecord,
    RankRecord,
    Trace,
    TraceRecord,
    TransferRecord,
    WindowRecord,
)
from hccc.runtime.build import Variant, build_library
from hccc.runtime.fault import WaitKind
from hccc.runtime.layout import MOST_BATCHES, MOST_BYTES, MOST_USER_BLOCKS, PEER, LayoutShape
from hccc.runtime.recording import STRIDE
from hccc.runtime.request import LaunchRequest, deadlines_of, ticks_of
from tests.runtime.handwritten import ALLREDUCE, INCLUDE, MESH, PROGRAMS, RING, STAGED, communicator

LL = LayoutShape(4, 4, 2, 1, 0, 0, 0, 0, 0, 1, 8192, packets=12, lines=147)


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiles layout.h as plain C, every warning an error."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("layout") / "layout.so"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]
    source = str(PROGRAMS / "layout.c")
    subprocess.run(
        [compiler, *strict, f"-I{INCLUDE}", source, "-o", str(library)], check=True, timeout=60
    )
    return ctypes.CDLL(str(library))


def numbers(
    header: ctypes.CDLL, shape: LayoutShape, count: int, size: int, micro: int
) -> list[int]:
    """Returns the numbers that C computes for one launch."""
    out = (ctypes.c_longlong * 13)()
    header.sizes(
        (ctypes.c_int * 13)(*shape.constants().values()),
        ctypes.c_longlong(count),
        ctypes.c_int(size),
        ctypes.c_longlong(micro),
        out,
    )
    return list(out)


@pytest.mark.parametrize(
    "shape", [RING, MESH, STAGED, LayoutShape(7, 3, 5, 2, 11, 4, 6, 9, 3, 4, 99_999), LL], ids=str
)
def test_sizes_agree(header: ctypes.CDLL, shape: LayoutShape) -> None:
    for count, size, micro in itertools.product(
        (0, 1, 7, 1000, 100003, 1 << 22, (1 << 28) + 1, 10**11),
        (1, 2, 4, 8),
        (0, 1, 100, 4096, 1 << 40),
    ):
        cut = shape.sizes(count, size, micro)
        assert numbers(header, shape, count, size, micro) == [
            cut.part,
            cut.micro,
            cut.batches,
            shape.scratch_bytes(count, size, micro),
            shape.flag_bytes,
            shape.ready_at,
            shape.done_at,
            shape.extension_at,
            shape.go_at,
            shape.finished_at,
            shape.state_at,
            shape.peers_at,
            shape.packets_at,
        ]


def test_structures_agree(header: ctypes.CDLL) -> None:
    structures = (
        RankRecord,
        CallRecord,
        FaultRecord,
        Params,
        CommRecord,
        LocalRecord,
        WindowRecord,
        TransferRecord,
        ProxyRingRecord,
    )
    out = (ctypes.c_int * 14)()
    header.structure_sizes(out)
    assert list(out) == [
        *map(ctypes.sizeof, structures),
        PEER,
        *map(ctypes.sizeof, (Trace, TraceRecord)),
        STRIDE,
        ABI,
    ]


def test_kinds_of_waits_agree() -> None:
    text = (INCLUDE / "hccc" / "hccc.h").read_text()
    (kinds,) = re.findall(r"^enum hccc_wait_kind \{(.*?)^\};", text, re.S | re.M)
    found = re.findall(r"\bHCCC_(?:WAIT_)?(\w+) = (\d+)", kinds)
    assert found == [(kind.name, str(kind.value)) for kind in WaitKind]


def test_a_fault_that_is_reset_says_nothing(header: ctypes.CDLL) -> None:
    assert header.reset()


@pytest.mark.parametrize("which", range(5))
def test_structures_of_another_version_are_refused(header: ctypes.CDLL, which: int) -> None:
    shape = LayoutShape(2, 1, 1, 1, 0, 0, 0, 0, 0, 1)
    assert header.checked_abi(c_shape(shape), 5) == 0
    assert header.checked_abi(c_shape(shape), which) == 7


@pytest.mark.quick(1)
@pytest.mark.parametrize("name, shape", [("ring", RING), ("mesh", MESH), ("staged", STAGED)])
def test_shapes_of_programs(name: str, shape: LayoutShape) -> None:
    library = build_library(PROGRAMS / f"{name}_cpu.cpp", Variant("float32"), include=[INCLUDE])
    out = (ctypes.c_int * 13)()
    ctypes.CDLL(str(library)).shape_of_program(out)
    assert LayoutShape(*out) == shape


INT = (1 << 31) - 1
large = st.integers(0, 9) | st.integers(0, INT) | st.just(INT)
shapes = st.builds(
    LayoutShape,
    *[st.integers(1, 9) | st.integers(1, INT) | st.just(INT)] * 4,
    *[large] * 5,
    st.sampled_from([1, 2, 1 << 16, 1 << 30]),
    st.integers(1024, 1 << 30),
    st.just(0) | large,
    large,
)
counts = st.integers(0, 99) | st.integers(0, 62).map(lambda k: 1 << k) | st.integers(0, 2**63 - 1)


def c_shape(shape: LayoutShape) -> ctypes.Array[ctypes.c_int]:
    """Returns the shape as C has it."""
    return (ctypes.c_int * 13)(*shape.constants().values())


def refused(header: ctypes.CDLL, shape: LayoutShape, size: int, **call: float) -> int:
    """Returns the status of a call of all ranks."""
    values = {"n_local": shape.ranks, **call}
    return int(header.checked(c_shape(shape), size, ctypes.byref(CallRecord.of(**values))))


@given(shapes, counts, st.sampled_from([1, 2, 4, 8]), st.integers(0, 9) | counts)
def test_what_is_too_large_agrees(
    header: ctypes.CDLL, shape: LayoutShape, count: int, size: int, micro: int
) -> None:
    problem = shape.too_large(count, size, micro)
    found = numbers(header, shape, count, size, micro)
    scratch, flags = shape.scratch_bytes(count, size, micro), shape.flag_bytes
    assert found[3] == (scratch if scratch <= MOST_BYTES else -1)
    assert found[4] == (flags if flags <= MOST_BYTES else -1)
    if not problem:
        cut = shape.sizes(count, size, micro)
        assert found[:3] == [cut.part, cut.micro, cut.batches]
    status = refused(header, shape, size, count=count, micro_batch_bytes=micro)
    fits = problem is None and shape.launch_blocks <= MOST_BLOCKS
    assert status == (0 if fits else 4), problem


TOO_MANY = MOST_BYTES + 1
sums = st.integers(0, 62).map(lambda k: 1 << k) | st.integers(0, TOO_MANY) | st.just(TOO_MANY)
sums |= sums.map(lambda n: MOST_BYTES - n).filter(lambda n: n >= 0)


@settings(deadline=None)
@given(sums, sums, st.integers(-1, 1))
def test_sums_and_products_end_at_too_many(header: ctypes.CDLL, a: int, b: int, by: int) -> None:
    near = max(0, min(MOST_BYTES - a + by, TOO_MANY)), MOST_BYTES // max(a, 1) + by
    for name in ("plus", "times"):
        function = getattr(header, name)
        function.restype, function.argtypes = ctypes.c_longlong, [ctypes.c_longlong] * 2
        for other in (b, *(n for n in near if 0 <= n <= TOO_MANY)):
            exact = a + other if name == "plus" else a * other
            assert function(a, other) == min(exact, TOO_MANY)


@example(MOST_BYTES, 1, 1)
@given(st.integers(-3, 99) | counts, st.integers(-3, 99) | counts, st.sampled_from([0, 1, 8]))
def test_buffer_bytes_do_not_wrap(header: ctypes.CDLL, blocks: int, count: int, size: int) -> None:
    header.buffer_bytes.restype = ctypes.c_longlong
    header.buffer_bytes.argtypes = [ctypes.c_longlong, ctypes.c_longlong, ctypes.c_int]
    exact = blocks * count * size
    good = min(blocks, count) >= 0 and size and exact <= MOST_BYTES
    assert header.buffer_bytes(blocks, count, size) == (exact if good else -1)


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ({"count": 1 << 36, "micro_batch_bytes": 16}, 4),  # 2^31 micro-batches and more
        ({"count": (1 << 33) - 8, "micro_batch_bytes": 16}, 0),
        ({"count": (1 << 33) - 4, "micro_batch_bytes": 16}, 0),
        ({"count": 1 << 62}, 4),
        ({"count": -1}, 2),
        ({"micro_batch_bytes": -1}, 2),
        ({"timeout_s": -1.0}, 2),
        ({"timeout_s": math.nan}, 2),
        ({"timeout_s": math.inf}, 0),
        ({"join_timeout_s": -1.0}, 2),
        ({"deadline_s": -1.0}, 2),
        ({"deadline_s": math.nan}, 2),
        ({"deadline_s": math.inf}, 0),
        ({"window": -1}, 2),
        ({"first_rank": 2, "n_local": 1}, 2),
        ({"first_rank": INT, "n_local": INT}, 2),
        ({"n_local": INT}, 2),
        ({"n_local": 0}, 2),
    ],
)
def test_calls_that_are_refused(header: ctypes.CDLL, call: dict[str, float], status: int) -> None:
    assert refused(header, LayoutShape(2, 1, 1, 1, 0, 0, 0, 0, 0, 1), 4, **call) == status


def test_more_blocks_than_a_launch_has_are_refused(header: ctypes.CDLL) -> None:
    shape = LayoutShape(1 << 16, 1, 64, 1 << 16, 0, 0, 0, 0, 0, 1)
    assert refused(header, shape, 4, count=1) == 4
    assert refused(header, shape, 4, count=1, n_local=256) == 0
    assert refused(header, shape, 4, count=1, n_local=257) == 4


def test_places_beyond_the_most_bytes_are_refused(header: ctypes.CDLL) -> None:
    """Of the last chunk of the last block of a user buffer, also where no buffer has so many."""
    shape, count = LayoutShape(1, 1 << 30, 1, 1, 0, 0, 0, 0, 0, 1), (1 << 42) - (1 << 22)
    assert refused(header, shape, 1, count=count, micro_batch_bytes=1 << 30) == 0
    assert refused(header, shape, 1, count=count + 1, micro_batch_bytes=1 << 30) == 4
    assert refused(header, LayoutShape(1, INT, 1 << 30, 1, 0, 0, 0, 0, 0, 1), 8, count=1) == 4


def test_tables_that_are_refused(header: ctypes.CDLL) -> None:
    ranks, fault, local = (RankRecord * 2)(), FaultRecord(), LocalRecord()
    for name, values in {
        "flags_at": {0: 0, 128: 0, 256: 0, -128: 2, 4: 2, 129: 2},
        "ranks": {0: 2},
        "fault": {0: 2},
        "n_ranks": {1: 2, 3: 2},
        "local": {0: 2},
    }.items():
        for value, status in values.items():
            comm = CommRecord.of(2, ctypes.addressof(ranks), ctypes.addressof(fault))
            call = CallRecord.of(n_local=1, local=ctypes.addressof(local))
            setattr(call if name == "local" else comm, name, value)
            found = header.checked_tables(ctypes.byref(comm), ctypes.byref(call))
            assert found == status, (name, value)
    assert header.checked_tables(None, ctypes.byref(CallRecord.of())) == 2
    assert header.checked_tables(ctypes.byref(CommRecord.of(2, 8, 8)), None) == 2


def test_proxy_rings_that_are_refused(header: ctypes.CDLL) -> None:
    sizes = (ctypes.sizeof(ProxyRingRecord), ctypes.sizeof(TransferRecord))
    good = dict(zip(("size", "transfer_size"), sizes, strict=True), length=8)
    good |= dict.fromkeys(("entries", "submitted", "taken", "completed"), 4096)
    for name, values in {
        "length": {1: 0, 2: 0, 1 << 31: 0, 0: 2, 3: 2, 6: 2, 12: 2},
        "size": {sizes[0] + 8: 7},
        "transfer_size": {sizes[1] - 8: 7},
        **{name: {0: 2} for name in ("entries", "submitted", "taken", "completed")},
    }.items():
        for value, status in values.items():
            ring = ProxyRingRecord(**{**good, name: value})
            assert header.checked_ring(ctypes.byref(ring)) == status, (name, value)


def test_lengths_of_blocks_that_are_refused(header: ctypes.CDLL) -> None:
    for lengths, status in (
        ([0, 5, 9], 0),
        ([9, 9, 9, 99], 0),  # only three are lengths
        ([10, 0, 0], 2),
        ([0, 0, 10], 2),
        ([-1, 0, 0], 2),
    ):
        table = (ctypes.c_longlong * len(lengths))(*lengths)
        assert header.checked_lengths(table, 3, ctypes.c_longlong(9)) == status
    assert header.checked_lengths(None, 3, ctypes.c_longlong(9)) == 0


def test_scratch_of_what_is_no_call(header: ctypes.CDLL) -> None:
    header.scratch.restype = ctypes.c_longlong
    shape = c_shape(LayoutShape(2, 1, 1, 1, 0, 1, 0, 0, 0, 1))
    calls = ((3, 4, 16), (3, 16, 48), (-1, 4, -1), (3, 0, -1), (3, 17, -1), (2**63 - 1, 1, -1))
    for count, size, wanted in calls:
        assert header.scratch(shape, ctypes.c_longlong(count), size) == wanted


def test_plans_of_a_catalogue(header: ctypes.CDLL) -> None:
    comm = ctypes.byref(CommRecord.of(2, 8, 8))
    for count, size, in_place, plan in (
        (0, 4, 0, 0),
        (24, 4, 0, 0),
        (25, 4, 0, 1),
        (99, 1, 0, 0),
        (1 << 62, 16, 0, 1),
        (0, 4, 3, 1),
        (-1, 4, 0, -2),
        (5, 0, 0, -2),
    ):
        call = CallRecord.of(count=count, in_place=in_place)
        assert header.picked(comm, ctypes.byref(call), size) == plan
    assert header.picked(None, ctypes.byref(CallRecord.of()), 4) == -2
    assert header.picked(comm, None, 4) == -2
    below = CommRecord.of(2, 8, 8, -128)
    assert header.picked(ctypes.byref(below), ctypes.byref(CallRecord.of()), 4) == -2


@pytest.mark.parametrize("n_local", [1, 2])
@pytest.mark.parametrize(("window", "in_place"), [(0, 0), (1, 1), (3, 5)])
def test_parameters_of_a_call(
    header: ctypes.CDLL, window: int, in_place: int, n_local: int
) -> None:
    shape, table = STAGED, (ctypes.c_longlong * 1)(7)
    local = (LocalRecord * 2)(LocalRecord(16, 32, 48), LocalRecord(64, 80, 96))
    comm = CommRecord.of(shape.ranks, 256, 512, 128)
    call = CallRecord.of(
        count=5000,
        micro_batch_bytes=1024,
        timeout_s=2.0,
        join_timeout_s=0.5,
        in_place=in_place,
        window=window,
        first_rank=1,
        n_local=n_local,
        local=ctypes.addressof(local),
        signature=99,
        blocks=ctypes.addressof(table),
    )
    found, cut = Params(), shape.sizes(5000, 4, 1024)
    header.params_of(c_shape(shape), ctypes.byref(comm), ctypes.byref(call), ctypes.byref(found))
    assert cut.batches > 3
    assert (found.ranks, found.fault, found.flags_at) == (256, 512, 128)
    assert (found.count, found.part, found.micro) == (5000, cut.part, cut.micro)
    assert (found.batches, found.window) == (cut.batches, window or cut.batches)
    assert (found.timeout, found.join_timeout) == (2 * 10**9, 10**9 // 2)
    assert (found.first_rank, found.in_place, found.signature) == (1, bool(in_place), 99)
    assert found.blocks == ctypes.addressof(table)
    one = (found.one.input, found.one.output, found.one.proxy_ring)
    if n_local == 1:
        assert (found.local, one) == (None, (16, 32, 48))
    else:
        assert (found.local, one) == (ctypes.addressof(local), (None, None, None))
    nothing = CallRecord.of(count=0, n_local=1, local=ctypes.addressof(local))
    header.params_of(c_shape(shape), ctypes.byref(comm), ctypes.byref(nothing), ctypes.byref(found))
    assert (found.batches, found.window, found.timeout) == (0, 1, 1 << 62)


@given(st.floats(0, allow_nan=False) | st.just(math.inf), st.sampled_from([10**8, 10**9]))
def test_timeouts_agree(header: ctypes.CDLL, seconds: float, per_second: int) -> None:
    header.ticks.restype = ctypes.c_ulonglong
    header.ticks.argtypes = [ctypes.c_double, ctypes.c_double]
    wanted = ticks_of(seconds, per_second)
    assert header.ticks(seconds, per_second) == wanted <= 1 << 62
    assert (wanted == 1 << 62) == (seconds == 0 or seconds * per_second >= 1 << 62)


@given(
    *[st.sampled_from([0.0, 1e-9, 0.5, 2.0, 60.0, 1e30, math.inf])] * 3,
    st.integers(1, 1024),
    st.booleans(),
)
def test_deadlines_agree(
    header: ctypes.CDLL,
    timeout: float,
    join_timeout: float,
    deadline: float,
    ranks: int,
    packets: bool,
) -> None:
    """A deadline bounds every wait, and waits look often enough at what bounds them. Of packets no
    rank is waited for longer, where all start with the launch."""
    request = LaunchRequest(
        1, "int32", timeout=timeout, join_timeout=join_timeout, deadline=deadline
    )
    local = (LocalRecord * ranks)()
    call = CallRecord.of(count=1, n_local=ranks, local=ctypes.addressof(local))
    call.timeout_s, call.join_timeout_s, call.deadline_s = timeout, join_timeout, deadline
    comm, found = CommRecord.of(ranks, 256, 512, 128), Params()
    shape = replace(STAGED, ranks=ranks, packets=int(packets), lines=int(packets))
    header.params_of(c_shape(shape), ctypes.byref(comm), ctypes.byref(call), ctypes.byref(found))
    wanted = deadlines_of(request, shape, 10**9)
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.deadline == ticks_of(deadline, 10**9)
    assert max(found.timeout, found.join_timeout) <= found.deadline
    assert not packets or found.join_timeout == found.timeout
    if ranks > 1:  # a rank that is launched elsewhere may come late
        call.n_local = ranks - 1
        header.params_of(
            c_shape(shape), ctypes.byref(comm), ctypes.byref(call), ctypes.byref(found)
        )
        assert found.join_timeout == min(ticks_of(join_timeout, 10**9), found.deadline)
    assert found.timeout == 1 << 62 or found.period <= found.timeout // 4 + 1
    assert found.deadline == 1 << 62 or found.period <= found.deadline // 64 + 1


def test_limits_agree(header: ctypes.CDLL) -> None:
    out = (ctypes.c_longlong * 5)()
    header.limits(out)
    most = [MOST_BATCHES, MOST_QUEUED_BATCHES, MOST_BLOCKS, MOST_BYTES, MOST_USER_BLOCKS]
    assert list(out) == most
    assert max(MAX_RANKS, MAX_CUSTOM_CHUNKS) <= MOST_USER_BLOCKS


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (LaunchRequest(1 << 40, "int8", micro_batch=1), "micro-batches in a part of a chunk"),
        (LaunchRequest(1 << 61, "float64"), "micro-batches in a part"),
    ],
)
def test_a_launch_too_large_asks_for_no_memory(request_: LaunchRequest, message: str) -> None:
    ring = communicator("ring", RING, ALLREDUCE)
    with pytest.raises(UserError, match=message) as caught:
        ring.launch([], [], request_)
    assert caught.value.problem.code == "E454" and not ring._scratch[0].size


def test_a_shape_with_too_many_blocks_asks_for_no_memory() -> None:
    with pytest.raises(UserError, match="4,294,967,296") as caught:
        communicator(
            "ring", LayoutShape(2, 1, 2, INT // 2 + 1, 0, 0, 0, 0, 0, 1, 4 << 20), ALLREDUCE
        )
    assert caught.value.problem.code == "E454"
