"""Standard collectives: calls for which no library is loaded have one made, once a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hccc.base.building.build import digest_of_folder
from hccc.base.building.places import user_directory
from hccc.driver import assumed as host
from hccc.ir.choices import PlanProtocol
from hccc.ir.op_type import OpType
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.communicator import Can, Result
from hccc.runtime.communicator.runtime_library import COMMUNICATOR, build
from hccc.runtime.device.stream import Stream
from hccc.runtime.transport.ucx_transport import available
from hccc.standard.libraries import standard_library
from tests.communicator import cuda
from tests.communicator.conftest import Library
from tests.communicator.test_calls import performs, plan_of
from tests.communicator.test_cuda import CudaRank, OnDevice
from tests.communicator.world import alone, loaded, run, start
from tests.marks import slow

ROOT = Path(__file__).parents[2]
RANKS = 3


@pytest.fixture
def fresh(tmp_path: Path) -> Mapping[str, str]:
    """Returns variables of a job whose libraries nobody has made: they are chosen by a file of its
    own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(host.VARIABLE, raising=False)
        text = host.text_of([RANKS], 2)
    file = tmp_path / "host.cluster"
    file.write_text(f"# {uuid.uuid4()}\n{text}")
    return {"HCCC_STANDARD": "1", host.VARIABLE: str(file), "HCCC_PROGRESS": "off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "below"),
    [
        (OpType.ALLREDUCE, 2048),
        slow(OpType.ALLGATHER, 4096),
        slow(OpType.REDUCESCATTER, 4096),
        (OpType.ALLTOALL, 4096),
        (OpType.BROADCAST, 2048),
        slow(OpType.REDUCE, 2048),
        slow(OpType.GATHER, 4096),
        slow(OpType.SCATTER, 4096),
    ],
)
def test_short_calls_exchange_packets(op: OpType, below: int) -> None:
    """On one host, up to the size from which on counters are as quick."""
    made = standard_library(op, host.cluster_of([RANKS]))
    for in_place in (False, True):
        sizes = (0, below - 1, below, 1 << 30)
        protocols = [made.plan_of(made.pick(size, in_place)).protocol for size in sizes]
        assert protocols == [PlanProtocol.LL] * 2 + [PlanProtocol.SIMPLE] * 2
    assert made.narrowest.operations == made.largest.operations


@pytest.mark.parametrize(
    ("op", "hosts"),
    [(OpType.BROADCAST, [1]), (OpType.BROADCAST, [1, 1]), slow(OpType.ALLREDUCE, [2, 1])],
)
def test_other_calls_have_no_packets(op: OpType, hosts: list[int]) -> None:
    plans = standard_library(op, host.cluster_of(hosts)).plans
    assert {plan.protocol for plan in plans} == {PlanProtocol.SIMPLE}


NO_MAKER = {"HCCC_COMMAND": "/nowhere/hccc"}


def adds_up(c: Communicator) -> list[Can]:
    found = [c.can("all_reduce", "float32"), c.can("all_reduce", "float32", root=1)]
    for count in (1, 511, 512, 1000):  # by packets, and without
        x = np.full(count, c.rank + 1, np.float32)
        c.all_reduce(x)
        assert (x == c.n_ranks * (c.n_ranks + 1) / 2).all()
    return [*found, c.can("all_reduce", "float32")]


def test_a_first_call_makes_its_library_and_a_second_start_finds_it(
    fresh: Mapping[str, str],
) -> None:
    assert run(RANKS, adds_up, environment=fresh) == [[Can.MAKE, Can.NOT, Can.NOW]] * RANKS
    again = {**fresh, **NO_MAKER}
    assert run(RANKS, adds_up, environment=again) == [[Can.LOAD, Can.NOT, Can.NOW]] * RANKS


def test_libraries_are_kept_by_the_headers_they_are_compiled_with() -> None:
    """As they are when the runtime is built: one that was made before is not taken for them."""
    run(1, adds_up, environment={"HCCC_STANDARD": "1", "HCCC_PROGRESS": "off"})
    ((_, headers),) = COMMUNICATOR.digests
    kept = user_directory("standard").glob(f"*-{digest_of_folder(headers)}-*/1-allreduce-*.so")
    assert any(kept)


def asked(c: Communicator) -> list[Can]:
    """Asks for calls that no type has, without a root, and of a root that is none."""
    with pytest.raises(CommunicatorError, match="root 1 is no rank: there are 1"):
        c.can("broadcast", root=1)
    none = [c.can("all_reduce", "complex64", "max"), c.can("reduce", "float32", "band")]
    return [*none, c.can("broadcast", "int64"), c.can("gather_v", "int64")]


def test_what_a_call_can_be_is_an_answer(fresh: Mapping[str, str]) -> None:
    assert run(1, asked, environment=fresh) == [[Can.NOT, Can.NOT, Can.MAKE, Can.MAKE]]


def refused(c: Communicator) -> str:
    """Returns the error of a call that has no library; the communicator is not lost."""
    with pytest.raises(CommunicatorError) as caught:
        c.all_reduce(np.ones(10, np.float64))
    assert caught.value.result is Result.INVALID_USAGE and c.error is Result.SUCCESS
    assert c.can("all_reduce", "float64") is Can.MAKE
    return caught.value.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (NO_MAKER, "/nowhere/hccc cannot be run: No such file"),
        ({"CXX": "/nowhere/g++"}, "no C++ compiler found ($CXX is `/nowhere/g++`) (install one"),
        ({"HCCC_COMMAND": "false"}, "false ended with 1"),
    ],
)
def test_what_cannot_be_made_costs_nothing(
    fresh: Mapping[str, str], more: Mapping[str, str], why: str
) -> None:
    for text in run(RANKS, refused, environment={**fresh, **more}):
        assert "does allreduce of float64, sum, for 3 ranks" in text and why in text, text


ALONE = """
from hccc.runtime.communicator import Communicator, CommunicatorError, unique_id
import numpy as np
with Communicator.join(unique_id(), 1, 0) as c:
    try:
        c.all_reduce(np.ones(10, np.float64))
    except CommunicatorError as error:
        print(error)
"""


@pytest.mark.parametrize("progress", ["", "off"])
def test_how_far_the_maker_is_is_told(
    tmp_path: Path, fresh: Mapping[str, str], progress: str
) -> None:
    """What else it says is the reason why there is no library."""
    maker = tmp_path / "maker"
    lines = r"hccc: Simulating … 3 of 9, 2 s\nelse\nerror[E412]: no room\n"
    maker.write_text(f"#!/bin/sh\nprintf '{lines}' >&2\nexit 1\n")
    maker.chmod(0o700)
    said = {**fresh, "HCCC_COMMAND": str(maker), "HCCC_PROGRESS": progress}
    environment = os.environ | said | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "no room" in done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith("hccc: Simul")]
    assert told == ([] if progress else ["hccc: Simulating … 3 of 9, 2 s"])
    assert "else" not in done.stderr


def usable(c: Communicator, place: Path) -> bool:
    refused(c)
    x = np.full(10, c.rank, np.int32)
    loaded(c, place).all_reduce(x)
    return bool((x == 3).all())


@pytest.mark.slow
def test_a_communicator_stays_usable(sums: Path, fresh: Mapping[str, str]) -> None:
    assert run(RANKS, usable, sums, environment={**fresh, **NO_MAKER}) == [True] * RANKS


def different(c: Communicator) -> str:
    x, y = np.ones(9, np.float64), np.ones(3, np.float64)
    with pytest.raises(CommunicatorError) as caught:
        c.reduce_scatter(x, y) if c.rank == 1 else c.all_reduce(x)
    assert c.error is Result.SUCCESS
    return caught.value.text


@pytest.mark.slow
def test_ranks_that_call_different_things_are_told(fresh: Mapping[str, str]) -> None:
    texts = run(RANKS, different, environment={**fresh, **NO_MAKER})
    for text in texts:
        assert "calls allreduce of float64" in text and "calls reducescatter of float64" in text
    assert "rank 1 calls" in texts[0]


def every_root(c: Communicator, *places: Path) -> bool:
    """Checks calls of all roots, in turn: each library was made for one."""
    loaded(c, *places)
    for turn in range(3):
        for root in (*range(c.n_ranks), *reversed(range(c.n_ranks))):
            assert performs(c, "broadcast", root, 1000 + turn)
            assert performs(c, "reduce", root, 1000 + turn)
    return True


@pytest.mark.slow
def test_one_library_serves_every_root(library: Library) -> None:
    made = [library(plan_of(name, RANKS, 1)) for name in ("broadcast", "reduce")]
    assert run(RANKS, every_root, *made) == [True] * RANKS  # none is made


def wrong_root(c: Communicator, place: Path, root: int) -> str:
    with pytest.raises(CommunicatorError) as caught:
        loaded(c, place).broadcast(np.zeros(5, np.int32), root)
    assert c.error is Result.SUCCESS
    return caught.value.text


@pytest.mark.slow
@pytest.mark.parametrize("root", [-1, RANKS])
def test_a_root_that_is_no_rank(library: Library, root: int) -> None:
    for text in run(RANKS, wrong_root, library(plan_of("broadcast", RANKS, 1)), root):
        assert text == f"root {root} is no rank: there are 3"


def all_of_them(c: Communicator) -> bool:
    roots = {"broadcast": 0, "reduce": 0, "gather": 1, "scatter": 0}
    names = ("all_gather", "reduce_scatter", "all_to_all", *roots)
    assert all(
        performs(c, name, roots.get(name, -1), count) for name in names for count in (1, 999)
    )
    for dtype in (np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.float64):
        x = np.arange(100).astype(dtype)
        y = np.zeros(100 * c.n_ranks, dtype)
        c.all_gather(x, y)
        assert (y.reshape(-1, 100) == x).all()
        c.all_reduce(x, op="max")
        assert (x == np.arange(100).astype(dtype)).all()
    part = c.split(c.rank // 2)
    assert part is not None and adds_up(part)[-1] is Can.NOW
    return True


@pytest.mark.slow
def test_every_collective_root_and_type(fresh: Mapping[str, str]) -> None:
    usual = {
        k: v for k, v in fresh.items() if k != host.VARIABLE
    }  # parts have other numbers of ranks
    found = start(RANKS, all_of_them, environment=usual).outcomes(timeout=500)
    assert found == dict.fromkeys(range(RANKS), True)


def uneven(c: Communicator) -> list[Can]:
    """Makes calls of blocks with lengths of their own, of which one reduces; rank r has r + 1
    elements for every rank, and of the result."""
    found = [
        c.can("all_to_all_v", "float16"),
        c.can("all_to_all_v", root=1),
        c.can("gather_v", root=1),
    ]
    n, own = c.n_ranks, c.rank + 1
    got = np.zeros(n * (n + 1) // 2, np.float16)
    lengths = list(range(1, n + 1))
    c.all_to_all_v(np.full(n * own, own, np.float16), got, [own] * n, lengths)
    assert (got == np.repeat(lengths, lengths)).all()
    least = np.zeros(own, np.float32)
    c.reduce_scatter_v(np.arange(len(got), dtype=np.float32) - c.rank, least, lengths, "min")
    assert (least == np.arange(own) + sum(lengths[: c.rank]) - (n - 1)).all()
    return [*found, c.can("all_to_all_v", "float16")]


@pytest.mark.slow
def test_uneven_collectives(fresh: Mapping[str, str]) -> None:
    found = start(RANKS, uneven, environment=fresh).outcomes(timeout=500)
    assert list(found.values()) == [[Can.MAKE, Can.NOT, Can.MAKE, Can.NOW]] * RANKS


def in_streams(place: Path, variables: Mapping[str, str]) -> bool:
    """Makes calls of several ranks one after another in one thread, which waits for none."""
    os.environ.update(variables)
    ranks = Communicator.init_all(RANKS)
    arrays = [np.full(50, r, np.int32) for r in range(RANKS)]
    streams = [Stream() for _ in ranks]
    for c, x, stream in zip(ranks, arrays, streams, strict=True):
        c.all_reduce(x, stream=stream)
    for c, stream in zip(ranks, streams, strict=True):
        stream.synchronize()
        c.check()
        c.destroy()
    return all((x == 3).all() for x in arrays)


@pytest.mark.slow
def test_calls_in_streams(tmp_path: Path, fresh: Mapping[str, str]) -> None:
    assert alone(in_streams, tmp_path, fresh)


_PROGRAM = """
#include "hccc_runtime.h"
int main(void) {
  hcccComm_t comm;
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  if (hcccCommInitAll(&comm, 1, 0)) return 1;
  if (hcccAllReduce(x, y, 4, hcccFloat32, hcccSum, comm, 0)) return 2;
  hcccCan_t can;
  if (hcccCommCan(comm, "Allreduce", -1, hcccFloat32, hcccSum, &can) || can != hcccCanNow) return 3;
  if (hcccBroadcast(x, y, 4, hcccFloat32, 1, comm, 0) != hcccInvalidArgument) return 4;
  hcccCommDestroy(comm);
  return y[0] == 1 && y[3] == 4 ? 0 : 5;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_a_program_in_c(tmp_path: Path) -> None:
    library = build()
    (tmp_path / "use.c").write_text(_PROGRAM)
    include = ROOT / "runtime" / "communicator" / "include"
    command = ["gcc", "use.c", f"-I{include}", str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([*command, "-o", "use"], cwd=tmp_path, check=True)
    variables = {
        "PYTHONPATH": str(ROOT / "src"),
        "HCCC_COMMAND": f"{sys.executable} -m hccc",
        "HCCC_STANDARD": "1",
    }
    subprocess.run([tmp_path / "use"], env=os.environ | variables, check=True, timeout=120)


def own_first(c: Communicator, place: Path) -> bool:
    c = loaded(c, place)
    x = np.ones(10, np.float32)
    c.all_reduce(x)  # nothing is made: that would fail
    return bool((x == RANKS).all())


@pytest.mark.slow
def test_libraries_of_ones_own_go_first(sums: Path, fresh: Mapping[str, str]) -> None:
    assert run(RANKS, own_first, sums, environment={**fresh, **NO_MAKER}) == [True] * RANKS


@pytest.mark.slow
def test_they_can_be_turned_off(fresh: Mapping[str, str]) -> None:
    off = {**fresh, "HCCC_STANDARD": "0"}
    for text in run(RANKS, turned_off, environment=off):
        assert text == "no library is loaded that does Allreduce"


def turned_off(c: Communicator) -> str:
    assert c.can("all_reduce") is Can.NOT
    with pytest.raises(CommunicatorError) as caught:
        c.all_reduce(np.ones(3, np.float32))
    return caught.value.text


HOSTS = {"UCX_TLS": "tcp,self", "HCCC_NETWORK": "lo", "HCCC_PROGRESS": "off"}  # as between hosts


def on_hosts(rank: int) -> Mapping[str, str]:
    """Returns the variables of a rank of two hosts, of two ranks and of one."""
    return {"HCCC_HOST_ID": f"host{rank // 2}"}


def between_hosts(c: Communicator) -> bool:
    assert adds_up(c) == [Can.MAKE, Can.NOT, Can.NOW]
    return all(performs(c, "broadcast", 2, 999) for _ in range(2))


@pytest.fixture
def ucx() -> None:
    """Skips where there is no UCX."""
    usable, text = available()
    if not usable:
        pytest.skip(text)


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
def test_ranks_of_several_hosts(tmp_path: Path) -> None:
    """The first rank of every host makes them there."""
    file, maker, told = (tmp_path / name for name in ("two.cluster", "maker", "told"))
    file.write_text(f"# {uuid.uuid4()}\n{host.text_of([2, 1])}")
    run_hccc = f'exec "{sys.executable}" -m hccc "$@"'
    maker.write_text(f'#!/bin/sh\necho "$HCCC_RANK $3 $5" >> "{told}"\n{run_hccc}\n')
    maker.chmod(0o700)
    own = {"HCCC_STANDARD": "1", "HCCC_COMMAND": str(maker), host.VARIABLE: str(file)}
    variables = {**HOSTS, **own, "PYTHONPATH": str(ROOT / "src")}
    made = start(RANKS, between_hosts, environment=variables, of_rank=on_hosts)
    assert made.outcomes(timeout=500) == dict.fromkeys(range(RANKS), True)
    wanted = [f"{rank} 2+1 {name}" for rank in (0, 2) for name in ("allreduce", "broadcast")]
    assert sorted(told.read_text().splitlines()) == wanted


def refused_between_hosts(c: Communicator) -> tuple[Can, str]:
    """Calls what no other test has had made for these hosts."""
    can = c.can("all_reduce", "uint16", "bxor")
    with pytest.raises(CommunicatorError) as caught:
        c.all_reduce(np.ones(3, np.uint16), op="bxor")
    assert c.error is Result.SUCCESS
    return can, caught.value.text


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
def test_a_host_that_can_make_none_is_named(fresh: Mapping[str, str]) -> None:
    usual = {k: v for k, v in fresh.items() if k != host.VARIABLE}
    made = start(
        RANKS,
        refused_between_hosts,
        environment={**usual, **HOSTS, **NO_MAKER},
        of_rank=on_hosts,
    )
    for can, text in made.outcomes().values():
        assert can is Can.MAKE and "rank 0: no library is loaded that does allreduce" in text
        assert "for hosts of 2+1 ranks" in text and "/nowhere/hccc cannot be run" in text


def dealt(c: Communicator) -> bool:
    """Checks results of ranks 0 and 2 on one host, 1 on another, in the ranks' order."""
    sent, places = np.arange(c.rank + 2, dtype=np.uint32) + 10 * c.rank, [5, 0, 8]
    got = np.full(12, 77, np.uint32)
    c.all_gather_v(sent, got, [2, 3, 4], places)
    assert got.tolist() == [10, 11, 12, 77, 77, 0, 1, 77, 20, 21, 22, 23]
    return performs(c, "all_to_all", 0, 999)


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
def test_hosts_whose_ranks_are_not_in_a_row(tmp_path: Path) -> None:
    file = tmp_path / "two.cluster"
    file.write_text(f"# {uuid.uuid4()}\n{host.text_of([2, 1])}")
    made = start(
        RANKS,
        dealt,
        environment={**HOSTS, "HCCC_STANDARD": "1", host.VARIABLE: str(file)},
        of_rank=lambda rank: {"HCCC_HOST_ID": f"host{rank % 2}"},
    )
    assert made.outcomes(timeout=500) == dict.fromkeys(range(RANKS), True)


@pytest.mark.slow
@pytest.mark.usefixtures("ucx")
@pytest.mark.parametrize(
    ("ranks", "hosts", "named"),
    [(3, lambda rank: rank % 2, "ranks 0,2+1"), (2, lambda rank: rank, "1+1 ranks")],
)
def test_ranks_of_hosts_are_named(ranks: int, hosts: Callable[[int], int], named: str) -> None:
    made = start(
        ranks,
        refused_between_hosts,
        environment={**HOSTS, **NO_MAKER, "HCCC_STANDARD": "1", "HCCC_CLUSTER": str(uuid.uuid4())},
        of_rank=lambda rank: {"HCCC_HOST_ID": f"host{hosts(rank)}"},
    )
    for can, text in made.outcomes().values():
        assert can is Can.MAKE and f"for hosts of {named}" in text


def on_gpus(c: Communicator) -> list[Can]:
    """Makes calls of standard collectives on the stand-in for a GPU; returns what there was."""
    rank, n = CudaRank(c), c.n_ranks
    found = [c.can("all_reduce", "int32")]
    for make in (rank.empty, rank.foreign):
        x = make(1000)
        x[:] = np.arange(1000) + rank.c.rank
        rank.all_reduce(x, x)
        rank.wait()
        assert np.array_equal(x, np.arange(1000) * n + n * (n - 1) // 2)
    one = OnDevice(rank.empty(3))
    one.of[:] = rank.c.rank
    c.broadcast(one, 1)
    rank.wait()
    assert one.of.tolist() == [1] * 3
    return [*found, c.can("all_reduce", "int32"), c.can("broadcast", "int32", root=1)]


def no_compiler_for_gpus(c: Communicator) -> str:
    rank = CudaRank(c)
    x = rank.empty(3)
    with pytest.raises(CommunicatorError) as caught:
        rank.all_reduce(x, x)
    assert c.error is Result.SUCCESS
    return caught.value.text


@pytest.mark.slow
@pytest.mark.skipif(not cuda.have_compiler(), reason="no g++")
def test_gpus(runtime: Path, fresh: Mapping[str, str], tmp_path: Path) -> None:
    """Made by a compiler that stands for nvcc; found by a second start without one."""
    gpus = {**fresh, "HCCC_GPU_ARCH": f"sm_{uuid.uuid4()}"}
    del gpus[host.VARIABLE]
    environment = cuda.environment(runtime, **gpus, NVCC=str(tmp_path / "nvcc"))
    text = run(2, no_compiler_for_gpus, environment=environment)[0]
    assert "that does allreduce of int32, sum, for 2 ranks on cuda" in text
    assert "no compiler for CUDA found (looked for nvcc) (install it" in text
    cuda.compiler(tmp_path / "nvcc", runtime)
    wanted = [Can.MAKE, Can.NOW, Can.NOW]
    assert run(2, on_gpus, environment=environment) == [wanted] * 2
    (tmp_path / "nvcc").unlink()
    again = [Can.LOAD, Can.NOW, Can.NOW]
    assert run(2, on_gpus, environment={**environment, **NO_MAKER}) == [again] * 2
