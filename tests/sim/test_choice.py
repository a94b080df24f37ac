"""What is chosen by simulated time is as fast as what it was chosen from."""

from pathlib import Path

import pytest
from hccc.sim.choice import CLOSE, score

from hccc import driver
from hccc.lang.cluster.load import load
from hccc.options import Options

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("algorithm", ["ring_reducescatter", "rhd_allreduce", "direct_alltoall"])
def test_a_mixed_plan_is_as_fast_as_each_way_over_the_network(algorithm: str) -> None:
    file, t = EXAMPLES / f"{algorithm}.rccl", load(EXAMPLES / "clusters" / "resccl-topo1.cluster")

    def took(options: Options) -> float:
        return score(driver.compile_file(file, options, t).plan, t)

    least = took(Options(prove=False))
    for way in ("put", "slots"):
        assert least <= took(Options("hpds", network_lowering=way, prove=False)) + CLOSE
    unfused = Options("hpds", network_lowering="put", fuse="none", prove=False)
    assert least <= took(unfused) + 2 * CLOSE


def test_large_programs_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    file = EXAMPLES / "ring_reducescatter.rccl"
    t = load(EXAMPLES / "clusters" / "resccl-topo1.cluster")
    tried = driver.compile_file(file, Options(prove=False), t)
    monkeypatch.setattr(driver, "MOST_MIXED_TRIED", len(tried.program) - 1)
    estimated = driver.compile_file(file, Options(prove=False), t)
    assert score(tried.plan, t) < score(estimated.plan, t)
