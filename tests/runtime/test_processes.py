"""Ranks in processes of their own, over shared memory that each sees at addresses of its own."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path

import pytest

from hccc.base.diagnostics import Source
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.fault import WaitKind
from tests.emit import plans
from tests.marks import slow
from tests.runtime.processes import (
    BAD_ARGUMENT,
    OK,
    PRIVATE,
    TIMEOUT,
    EndedProcess,
    Launch,
    Outcome,
    Processes,
    ended,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

SEVERAL = [
    Launch(1000),
    Launch(7, (1, 4096 * 5), (0, 4096 * 20)),
    Launch(5000, (0, 4096 * 40 + 4), (0, 4096 * 100 + 8), window=1),
    Launch(1000, (1, 4096 * 30), (1, 4096 * 30), in_place=True),
    Launch(0, (0, 4096 * 200), (0, 4096 * 200)),
    Launch(2000, (1, 4096 * 60), (1, 4096 * 90), micro_batch=0),
]


def ring(n: int = 4, transport: Transport = Transport.DIRECT) -> Plan:
    return plans.compiled(plans.ring_allreduce(n), transport=transport)


def mixed(network: str, nodes: int = 2, gpus: int = 2, channels: int = 1) -> Plan:
    """Compiles a hierarchical mesh between memory domains."""
    mesh = plans.hierarchical_mesh(nodes, gpus, channels=channels)
    return driver.compile_program(mesh, Options(network_lowering=network)).plan


def assert_right(world: Processes, done: list[EndedProcess], launches: list[Launch]) -> None:
    statuses = [[launch.status for launch in process.launches] for process in done]
    assert statuses == [[OK] * len(launches)] * len(done), done
    assert world.wrong(launches) == [0] * len(launches)


@pytest.mark.slow
@pytest.mark.parametrize("transport", [Transport.DIRECT, Transport.STAGED])
def test_launches_with_other_tensors_need_no_new_tables(
    transport: Transport, tmp_path: Path
) -> None:
    world = Processes(ring(4, transport), tmp_path)
    world.fill(SEVERAL)
    done = world.run([(0, 1), (1, 1), (2, 1), (3, 1)], SEVERAL)
    assert_right(world, done, SEVERAL)
    assert len({process.places for process in done}) == 4


@pytest.mark.slow
def test_processes_of_unlike_numbers_of_ranks(tmp_path: Path) -> None:
    world = Processes(plans.compiled(plans.hierarchical_mesh(2, 3)), tmp_path)
    for groups in ([(0, 1), (1, 3), (4, 2)], [(0, 6)], [(0, 5), (5, 1)]):
        world.fill(SEVERAL)
        assert_right(world, world.run(groups, SEVERAL), SEVERAL)


@pytest.mark.slow
def test_blocks_of_other_collectives(tmp_path: Path) -> None:
    plan = plans.compiled(plans.alltoall(4))
    world = Processes(plan, tmp_path, dtype="uint32")
    launches = [Launch(300), Launch(1001, (1, 4096 * 50), (0, 4096 * 50))]
    world.fill(launches)
    assert_right(world, world.run([(0, 2), (2, 1), (3, 1)], launches), launches)


@pytest.mark.slow
def test_a_network_puts_what_a_call_in_place_has_saved(tmp_path: Path) -> None:
    """A copy of the input in scratch, where the output takes its place before it is sent."""
    program = plans.alltoall(4, gpus=2, channels=2)
    plan = driver.compile_program(program, Options(network_lowering="put")).plan
    world = Processes(plan, tmp_path, dtype="uint32")
    launches = [Launch(300, (1, 4096), (1, 4096), in_place=True), Launch(99)]
    assert world.shape.stage > 1
    world.fill(launches)
    assert_right(world, world.run([(0, 2), (2, 2)], launches, "domain=2"), launches)


@pytest.mark.slow
@pytest.mark.parametrize("late", [slow(0), 1])
@pytest.mark.parametrize("network", ["slots", "put"])
def test_a_proxy_in_each_process(network: str, late: int, tmp_path: Path) -> None:
    world = Processes(mixed(network), tmp_path)
    for groups in ([(0, 1), (1, 1), (2, 1), (3, 1)], [(0, 2), (2, 1), (3, 1)]):
        world.reset()  # rings are new in every process, and so are their counters
        world.fill(SEVERAL)
        done = world.run(groups, SEVERAL, "domain=2", f"late={late}")
        assert_right(world, done, SEVERAL)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["slots", "put"])
def test_a_mixed_plan_where_all_memory_is_shared(network: str, tmp_path: Path) -> None:
    world = Processes(mixed(network), tmp_path)
    world.fill(SEVERAL)
    assert_right(world, world.run([(0, 2), (2, 2)], SEVERAL), SEVERAL)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["put", "slots"])
def test_no_number_overflows_on_the_way_to_a_network(network: str, tmp_path: Path) -> None:
    """Windows, offsets in them, slots and counters are counted in long longs."""
    kinds = "signed-integer-overflow,shift,bounds,integer-divide-by-zero,pointer-overflow"
    world = Processes(mixed(network, channels=2), tmp_path, flags=(f"-fsanitize={kinds}",))
    world.fill(SEVERAL)
    done = world.run([(0, 2), (2, 2)], SEVERAL, "domain=2")
    assert_right(world, done, SEVERAL)
    assert not any(process.complaint for process in done)


@pytest.mark.slow
def test_a_network_without_a_proxy_ring(tmp_path: Path) -> None:
    world = Processes(mixed("slots"), tmp_path)
    for wrong, status in (("rings=0", 2), ("ring=48", 2), ("ring_bytes=40", 7), ("own_flags=0", 2)):
        (process,) = world.run([(0, 2)], [Launch(10)], "domain=2", wrong)
        assert [launch.status for launch in process.launches] == [status], wrong
    direct = Processes(ring(), tmp_path / "direct")
    (process,) = direct.run([(0, 2)], [Launch(10)], "domain=2")
    assert [launch.status for launch in process.launches] == [2]


@pytest.mark.slow
def test_buffers_outside_windows(tmp_path: Path) -> None:
    groups, private = [(0, 2), (2, 2)], [Launch(500, (PRIVATE, 0), (PRIVATE + 1, 0))]
    staged = Processes(ring(4, Transport.STAGED), tmp_path / "staged")
    staged.fill(private)
    assert_right(staged, staged.run(groups, private), private)
    direct = Processes(ring(), tmp_path / "direct")
    done = direct.run(groups, private, "timeout_ms=2000")
    assert [p.launches[0].status for p in done] == [TIMEOUT] * 2
    assert {p.launches[0].kind for p in done} == {WaitKind.NOT_IN_WINDOW}


@pytest.mark.slow
def test_buffers_that_run_past_their_window(tmp_path: Path) -> None:
    """The memory after a window belongs to others. A buffer of no bytes may be anywhere."""
    plan = plans.compiled(plans.ring_allgather(3))
    world = Processes(plan, tmp_path, dtype="uint32", window=1 << 16)
    groups, elements = [(0, 1), (1, 2)], (1 << 16) // 4 // 3
    fits = [Launch(elements, (0, 0), (1, 4))]
    world.fill(fits)
    assert_right(world, world.run(groups, fits), fits)
    beyond = Launch(elements, (0, 0), (1, 8))
    done = world.run(groups, [beyond], "timeout_ms=2000")
    assert {(o.status, o.kind, o.flag) for o in faults(done)} == {
        (TIMEOUT, WaitKind.NOT_IN_WINDOW, 1)
    }
    world.reset()
    nothing = [Launch(0, (PRIVATE, 0), (PRIVATE + 1, 0))]
    assert_right(world, world.run(groups, nothing), nothing)


EXCHANGE = """ResCCLAlgo(nRanks=2, OpType='Reducescatter', GPUPerNode=1, NICPerNode=1):
    transfer(0, 1, 0, 1, rrc)
    transfer(1, 0, 0, 0, rrc)
"""


@pytest.mark.slow
def test_a_proxy_reads_windows_only(tmp_path: Path) -> None:
    """No rank touches another's buffers here, but the proxy puts from them into scratch."""
    options = Options(network_lowering="put")
    world = Processes(driver.compile_text(Source("exchange", EXCHANGE), options).plan, tmp_path)
    groups, private = [(0, 1), (1, 1)], [Launch(500, (PRIVATE, 0), (1, 0))]
    done = world.run(groups, private, "domain=1", "timeout_ms=2000")
    assert {(o.status, o.kind, o.flag) for o in faults(done)} == {
        (TIMEOUT, WaitKind.NOT_IN_WINDOW, 0)
    }
    world.reset()
    shared = [Launch(500, (0, 0), (1, 0)), Launch(400, (1, 4096 * 9), (0, 4096 * 7))]
    world.fill(shared)
    assert_right(world, world.run(groups, shared, "domain=1"), shared)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["slots", "put"])
def test_a_table_without_a_rank_of_the_own_domain(network: str, tmp_path: Path) -> None:
    """Four ranks of two domains for the plan; for their callers each is alone."""
    world = Processes(mixed(network, 2, 2), tmp_path)
    done = world.run([(r, 1) for r in range(4)], [Launch(500)], "domain=1", "timeout_ms=2000")
    assert [o.status for o in faults(done)] == [BAD_ARGUMENT] * 4


# Skew. A machine with much else to do may not run a process for some tenths of a second.

PATIENCE_MS = 1000
LONG = 8 << 20  # bytes that take longer than a rank that is to die in between takes to notice


@pytest.mark.parametrize(("ranks", "channels"), [slow(6, 1), slow(4, 64)])
def test_a_late_rank_is_no_fault(ranks: int, channels: int, tmp_path: Path) -> None:
    """A wait along a ring is no fault while the chain of waits ends at a late rank. With many
    channels most blocks of a rank wait for its first block, which alone knows of the delay."""
    world = Processes(plans.compiled(plans.ring_allreduce(ranks, channels=channels)), tmp_path)
    late = [4 * PATIENCE_MS, *[0] * (ranks - 1)]
    launches = [Launch(2000), Launch(2000, (0, 65536), (1, 65536), delay=late)]
    for own in ("own_fault=0", "own_fault=1"):
        world.fill(launches)
        options = (f"timeout_ms={PATIENCE_MS}", own)
        done = world.run([(r, 1) for r in range(ranks)], launches, *options)
        assert_right(world, done, launches)
        assert done[ranks // 2].launches[1].seconds > 3e-3 * PATIENCE_MS


@pytest.mark.slow
def test_a_late_rank_of_another_domain_is_no_fault(tmp_path: Path) -> None:
    world = Processes(mixed("slots", 3, 2), tmp_path)
    launches = [Launch(2000, delay=[0, 0, 4 * PATIENCE_MS])]
    world.fill(launches)
    done = world.run([(0, 2), (2, 2), (4, 2)], launches, "domain=2", f"timeout_ms={PATIENCE_MS}")
    assert_right(world, done, launches)


def faults(done: list[EndedProcess]) -> list[Outcome]:
    return [process.launches[0] for process in done]


@pytest.mark.slow
def test_a_rank_that_never_comes(tmp_path: Path) -> None:
    world = Processes(ring(6), tmp_path)
    here = [(r, 1) for r in range(5)]
    options = ("timeout_ms=500", "join_timeout_ms=1000", "own_fault=1")
    done = world.run(here, [Launch(2000), Launch(10)], *options)
    assert [o.status for o in faults(done)] == [TIMEOUT] * 5
    assert [(o.kind, o.flag) for o in faults(done) if o.rank in (0, 4)] == [(WaitKind.READY, 5)] * 2
    # It sticks: the next launch does not even begin.
    assert all(p.launches[1].status == TIMEOUT and p.launches[1].seconds < 0.1 for p in done)
    assert all(o.seconds < 20 for o in faults(done))


@pytest.mark.slow
def test_who_waits_for_long_leaves_the_cores_to_others(tmp_path: Path) -> None:
    """Four ranks wait two seconds for a fifth, and take a small part of one core's time for it."""
    world = Processes(ring(5), tmp_path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    launches = [Launch(1000, delay=(0, 0, 0, 0, 2000))]
    done = world.run([(r, 1) for r in range(5)], launches, "timeout_ms=500")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [p.launches[0].status for p in done] == [OK] * 5
    assert max(p.launches[0].seconds for p in done) > 1.5
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert took < 0.25 * 4 * 2


@pytest.mark.slow
@pytest.mark.parametrize("own", [0, 1])
def test_a_deadline_is_of_all_waits_of_a_launch(own: int, tmp_path: Path) -> None:
    """Others have waited 1.8 of 3 s for a rank to start when it dies in the middle of its launch:
    they leave after 3 s, not 3 s after that. A wait by itself may last for ever."""
    world = Processes(ring(6), tmp_path, window=LONG)
    launches = [Launch(LONG // 4, micro_batch=16, delay=[1800 * (r == 2) for r in range(6)])]
    more = [["dies=1"] if r == 2 else [] for r in range(6)]
    options = ("timeout_ms=0", "deadline_ms=3000", f"own_fault={own}")
    done = world.run([(r, 1) for r in range(6)], launches, *options, more=more)
    assert done[2].code == -9 and not done[2].launches
    survivors = [p.launches[0] for r, p in enumerate(done) if r != 2]
    assert [o.status for o in survivors] == [TIMEOUT] * 5
    assert all(2.9 < o.seconds < 4.5 for o in survivors), survivors


@pytest.mark.slow
def test_a_launch_begins_with_none_of_the_time_of_another(tmp_path: Path) -> None:
    """Launches one after another, each in less than the deadline and together in more."""
    world = Processes(ring(3), tmp_path)
    launches = [
        Launch(100, (0, 4096 * k), (1, 4096 * k), delay=[500 * (k % 2), 0, 0]) for k in range(6)
    ]
    world.fill(launches)
    done = world.run([(r, 1) for r in range(3)], launches, "deadline_ms=1000")
    assert_right(world, done, launches)


@pytest.mark.slow
@pytest.mark.parametrize("own", [0, 1])
def test_a_rank_that_dies_is_reported_by_all_others(own: int, tmp_path: Path) -> None:
    world = Processes(ring(6), tmp_path, window=LONG)
    launches = [Launch(LONG // 4, target=(1, 0), micro_batch=16), Launch(10)]
    more = [["dies=1"] if r == 2 else [] for r in range(6)]
    groups = [(r, 1) for r in range(6)]
    done = world.run(groups, launches, "timeout_ms=500", f"own_fault={own}", more=more)
    assert done[2].code == -9 and not done[2].launches
    survivors = [p for r, p in enumerate(done) if r != 2]
    assert [[o.status for o in p.launches] for p in survivors] == [[TIMEOUT, TIMEOUT]] * 5
    if not own:
        assert len({(o.rank, o.kind, o.flag) for o in faults(survivors)}) == 1
    else:
        assert [o.rank for o in faults(survivors)] == [0, 1, 3, 4, 5]
    world.reset()
    again = [Launch(1000, (0, 4096), (1, 8192))]
    world.fill(again)
    assert_right(world, world.run(groups, again), again)


@pytest.mark.slow
def test_somebody_else_ends_a_launch(tmp_path: Path) -> None:
    world = Processes(ring(), tmp_path)
    running = world.start([(0, 1), (1, 2)], [Launch(1000)], [["timeout_ms=0"]] * 2)
    time.sleep(0.5)
    world.fault.kind, world.fault.claimed = WaitKind.ABORTED, 1
    done = ended(running)
    assert [(o.status, o.kind) for o in faults(done)] == [(TIMEOUT, WaitKind.ABORTED)] * 2
