"""symmetric: which kernel NCCL takes for registered buffers, its time, and where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source
from hccc.driver.inputs import parse_cluster
from hccc.ir.collective import OpType
from hccc.predict.nccl.calibration import calibration
from hccc.predict.nccl.machine import NcclMachine, of
from hccc.predict.nccl.model import Prediction, predict, predict_registered
from hccc.predict.nccl.rows import registered_rows
from hccc.predict.nccl.symmetric import KERNELS, refusal, symmetric
from hccc.predict.nccl.tuning import SymmetricKernel as K
from tests.predict.nccl.machines import A100, B200, GH200, H100, L40S, MI300X, of_nodes

AR, AG, RS = OpType.ALLREDUCE, OpType.ALLGATHER, OpType.REDUCESCATTER
PAIR = replace(H100, gpus=2)
ops = st.sampled_from(sorted(KERNELS))
nodes = st.builds(
    lambda m, n: replace(m, gpus=n, nvls=m.nvls and n > 2),
    st.sampled_from((A100, H100, B200, GH200)),
    st.integers(2, 72),
)
FOUR = "define device = V100\ndefine node1 = 4\ndefine bandwidth = {{{}}}"
RING = ", ".join(f"(({a},{(a + s) % 4}) -> (50,1))" for a in range(4) for s in (1, 3))


def taken(m: NcclMachine, op: OpType, size: int) -> Prediction:
    (found,) = predict_registered(m, op, [size])
    assert found is not None
    return found


def test_small_calls_take_what_nccl_says() -> None:
    """4.5 µs in LL and 7.8 µs by loads and stores on 8 H100, and 1.125 N by the switches instead of
    1.75 N (NCCL 2.30.7, src/sym_kernels.cc); 11 and 8.5 µs in LL on B200."""
    assert 4.5 < taken(H100, AR, 8).time_us < 5
    assert 7.8 < taken(replace(H100, nvls=False), AR, 1 << 16).time_us < 8.5
    assert 11 < taken(B200, AR, 8).time_us < 11.6 and 8.5 < taken(B200, AG, 8).time_us < 9.1
    (usual,) = predict(H100, AR, [8])
    assert usual.time_us > 2.5 * taken(H100, AR, 8).time_us


@pytest.mark.parametrize(
    ("op", "mebibytes", "measured"),
    [
        (AG, 2, 10.9),
        (AG, 8, 27.4),
        (AG, 32, 95.3),
        (AG, 128, 363.2),
        (RS, 2, 10.8),
        (RS, 8, 28.8),
        (RS, 32, 100.5),
    ],
)
def test_published_times_of_8_h100(op: OpType, mebibytes: int, measured: float) -> None:
    """Of kernels alone, bf16 (NVIDIA/Megatron-LM pull request 5596); nothing is fitted to them."""
    assert taken(H100, op, mebibytes << 20).time_us == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("m", "op", "kernels"),
    [
        (H100, AR, (K.AG_LLMC_R, K.AG_LLMC_R, K.RS_LDMC_AG_STMC, K.RS_LDMC_AG_STMC)),
        (A100, AR, (K.AG_LL_R, K.AG_LL_R, K.RS_LD_AG_ST, K.RS_LD_AG_ST)),
        (PAIR, AR, (K.AG_LLMC_R, K.AG_LLMC_R, K.RS_LDMC_AG_STMC, K.RS_LDMC_AG_STMC)),
        (H100, AG, (K.LLMC, K.LLMC, K.STMC, K.STMC)),
        (A100, AG, (K.LL, K.LL, K.ST, K.ST)),
        (H100, RS, (K.LL, K.LL, K.LDMC, K.LDMC)),
        (A100, RS, (K.LL, K.LL, K.LD, K.LD)),
    ],
)
def test_kernels_by_size(m: NcclMachine, op: OpType, kernels: tuple[K, ...]) -> None:
    found = predict_registered(m, op, [8, 1 << 14, 1 << 20, 1 << 30])
    assert tuple(one and one.protocol for one in found) == kernels


def test_two_gpus_and_racks_have_no_multicast_and_one_block_of_it() -> None:
    """NCCL multicasts among more than two; 16 blocks of all GPUs together (Blackwell: 32) do."""
    pair = of(parse_cluster(Source("pair", "define device = H100\ndefine node1 = 2")))
    eight = of(parse_cluster(Source("node", "define device = H100\ndefine node1 = 8")))
    assert taken(pair, AR, 1 << 30).protocol is K.RS_LD_AG_ST
    assert taken(eight, AR, 1 << 30).protocol is K.RS_LDMC_AG_STMC
    rack = of(parse_cluster(Source("rack", "define device = GB200\ndefine node1 = 18 * 4")))
    assert rack.nodes == 1 and taken(rack, AR, 1 << 30).channels == 1


def test_fewer_blocks_are_taken_for_less() -> None:
    """Of kernels by loads and stores: NCCL takes the fewest that lose less than 2.5 %."""
    few, many = (taken(A100, AR, size).channels for size in (1 << 16, 1 << 30))
    assert few < many < 16


@settings(max_examples=60, deadline=None)
@given(nodes, ops, st.lists(st.integers(1, (64 << 30) - 1), min_size=1, max_size=20))
def test_laws(m: NcclMachine, op: OpType, of: list[int]) -> None:
    """Nothing is faster than the wire, a kernel of its own takes no less for more, and no launch
    ends before the program has made it."""
    wanted = np.array(sorted(of), np.float64)
    found = symmetric(m, op, wanted, calibration())
    least = wanted * (1 if op is AR and m.nvls else (m.ranks - 1) / m.ranks) / (m.wire * 1000)
    assert (found.time >= least).all() and (found.time > 4.5).all()
    assert ((found.blocks >= 1) & (found.blocks <= 64)).all()
    for k in range(len(found.kernels)):
        own = found.time[found.kernel == k]
        assert (np.diff(own) >= -0.03 * own[1:]).all()  # of other blocks: 2.5 % and less
    late = symmetric(replace(m, floor=1e6), op, wanted, calibration())
    assert (late.time >= 1e6).all()


@pytest.mark.parametrize(
    ("m", "op", "why"),
    [
        (H100, OpType.BROADCAST, "no symmetric kernel for Broadcast"),
        (H100, OpType.ALLTOALL, "no symmetric kernel for Alltoall"),
        (of_nodes(H100, 2), AR, "within one NVLink domain"),
        (of_nodes(H100, 2), AG, "between NVLink domains are not modelled"),
        (L40S, AR, "need NVLink"),
        (MI300X, AR, "RCCL"),
    ],
)
def test_where_there_is_none(m: NcclMachine, op: OpType, why: str) -> None:
    assert predict_registered(m, op, [8, 1 << 30]) == [None, None]
    found, said = registered_rows(m, op, [8])
    assert found == (None,) and said is not None and why in said


def test_most_bytes() -> None:
    """From 64 GiB on NCCL takes what it takes by default."""
    found = predict_registered(H100, AR, [8, (64 << 30) - 1, 64 << 30])
    assert [one is None for one in found] == [False, False, True]
    assert "64 GiB" in (refusal(H100, AR, 64 << 30) or "")


@pytest.mark.parametrize(
    ("links", "direct"),
    [("mesh => [((0..3) -> (50,1))]", True), (f"direct => [{RING}]", False)],
)
def test_every_gpu_needs_links_to_all_others(links: str, direct: bool) -> None:
    m = of(parse_cluster(Source("four", FOUR.format(links))))
    assert m.direct is direct
    assert (refusal(m, AR, 8) is None) is direct


def test_a_row_says_that_buffers_are_registered() -> None:
    (row,), why = registered_rows(H100, AR, [1 << 20], more=2.0)
    assert row is not None and why is None and row.registered and row.name == "NCCL registered"
    assert row.choice == "Symmetric RSxLDMC_AGxSTMC, 1 channel"
    assert row.time == pytest.approx(taken(H100, AR, 1 << 20).time_us + 2)
    assert row.busbw == pytest.approx(row.algbw * 7 / 4)
