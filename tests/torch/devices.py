"""Cases of tensors of a device: of a GPU with HCCC_TEST_DEVICE=cuda, else a type of PyTorch's
devices on the stand-in for a GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hccc.torch
from hccc.ir.collective import OpType
from hccc.ir.job import vendor_clusters
from hccc.runtime.torch.extension import build, extension, loaded
from hccc.runtime.torch.installed import torch
from hccc.synth.builtin.hetccl import hetccl

dist: Any = torch.distributed
FUNCTIONAL = import_module("torch.distributed._functional_collectives")


def _device() -> Any:
    """Makes the module of functions of the device: what holds its streams, and asks them."""
    if KIND == "cuda":
        return import_module("tests.torch.cuda_device")
    return loaded("standin", build(Path(__file__).parent / "standin" / "standin.cpp"))


KIND = os.environ.get("HCCC_TEST_DEVICE", "standin")
STREAMS = _device()
DEVICE = f"{KIND}:0"
COUNT = 1000
Op = dist.ReduceOp


@contextmanager
def joined() -> Iterator[None]:
    """Makes a group of both kinds of memory, whose first call on the device has been made.
    HCCC_TEST_APART: hosts and vendors of ranks, `a nccl, b own`."""
    torch.set_num_threads(1)
    if KIND == "standin":
        torch.utils.rename_privateuse1_backend("standin")
        STREAMS.open(os.environ["HCCC_CUDA_LIBRARY"])
        torch._register_device_module("standin", STREAMS)
        extension().set_platform("standin", "cuda")
    if apart := os.environ.get("HCCC_TEST_APART"):
        host, vendor = apart.split(", ")[int(os.environ["RANK"])].split()
        os.environ.update(HCCC_HOST_ID=host, HCCC_VENDOR=vendor)
    dist.init_process_group(f"cpu:hccc,{KIND}:hccc")
    dist.all_reduce(_zeros(1))
    yield
    STREAMS.release()
    dist.destroy_process_group()


def _zeros(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


def _pattern(count: int, of: int) -> Any:
    return torch.arange(count, dtype=torch.float32) + 10 * of


def _own(count: int = COUNT) -> Any:
    """Makes this rank's tensor on the device."""
    return _pattern(count, dist.get_rank()).to(DEVICE)


def _all(count: int = COUNT) -> list[Any]:
    """Lists the tensors of all ranks, on the host."""
    return [_pattern(count, r) for r in range(dist.get_world_size())]


def _late(value: float) -> Any:
    """Makes a tensor that the current stream writes when it is released."""
    made = _zeros(COUNT)
    STREAMS.hold()
    STREAMS.fill(made, value)
    return made


def _total(values: range) -> list[float]:
    return [float(sum(values))] * COUNT


def streams() -> None:
    """Checks that a call waits for the current stream, which waits for the call, and the host for
    neither."""
    n = dist.get_world_size()
    after = _zeros(COUNT)
    x = _late(dist.get_rank() + 1)
    work = dist.all_reduce(x, async_op=True)
    assert not work.is_completed()
    assert work.wait()
    after.copy_(x)
    assert not work.is_completed()
    assert not STREAMS.idle()
    STREAMS.release()
    assert after.tolist() == _total(range(1, n + 1))
    assert work.is_completed() and work.is_success()
    assert torch.__version__ < "2.13" or work.exception() is None
    y = _late(dist.get_rank() + 1)
    dist.all_reduce(y)  # not asynchronous: likewise
    assert not STREAMS.idle()
    STREAMS.release()
    assert y.tolist() == _total(range(1, n + 1))


def recorded() -> None:
    """Checks that memory which is freed is not used again before the call is done with it."""
    n, r = dist.get_world_size(), dist.get_rank()
    gathered = _zeros(n * COUNT)
    dist.all_gather_into_tensor(gathered, _zeros(COUNT))
    STREAMS.synchronize()
    x = _late(r + 1)
    at = x.data_ptr()
    dist.all_gather_into_tensor(gathered, x, async_op=True)
    del x
    other = torch.empty(COUNT, device=DEVICE)
    assert other.data_ptr() != at
    STREAMS.fill(other, 99)
    STREAMS.release()
    dist.barrier()
    assert gathered.view(n, COUNT).cpu()[:, -1].tolist() == [float(s + 1) for s in range(n)]
    again = [torch.empty(COUNT, device=DEVICE) for _ in range(50)]
    assert at in [one.data_ptr() for one in again]  # now it is


def collectives() -> None:
    n, r, every = dist.get_world_size(), dist.get_rank(), _all()
    for asynchronous in (False, True):

        def made(work: Any, asynchronous: bool = asynchronous) -> None:
            assert (work is not None) == asynchronous
            if work is not None:
                work.wait()

        x = _own()
        made(dist.all_reduce(x, async_op=asynchronous))
        assert torch.equal(x.cpu(), sum(every))
        x = _own()
        made(dist.broadcast(x, n - 1, async_op=asynchronous))
        assert torch.equal(x.cpu(), every[-1])
        parts = [_zeros(COUNT) for _ in range(n)]
        made(dist.all_gather(parts, _own(), async_op=asynchronous))
        assert [torch.equal(a.cpu(), b) for a, b in zip(parts, every, strict=True)] == [True] * n
        y = _zeros(COUNT)
        made(dist.reduce_scatter_tensor(y, _own(n * COUNT), async_op=asynchronous))
        assert torch.equal(
            y.cpu(), torch.stack(_all(n * COUNT)).sum(0, dtype=y.dtype).view(n, COUNT)[r]
        )
        z = _zeros(n * COUNT)
        made(dist.all_to_all_single(z, _own(n * COUNT), async_op=asynchronous))
        wanted = [one.view(n, COUNT)[r] for one in _all(n * COUNT)]
        assert torch.equal(z.cpu(), torch.cat(wanted))
    strided = _own(2 * COUNT).view(COUNT, 2)[:, 0]  # is copied
    dist.all_reduce(strided)
    assert torch.equal(strided.cpu(), sum(one[::2] for one in _all(2 * COUNT)))


def more_collectives() -> None:
    n, r, every = dist.get_world_size(), dist.get_rank(), _all()
    x = _own()
    dist.reduce(x, 1)
    assert r != 1 or torch.equal(x.cpu(), sum(every))
    parts = [_zeros(COUNT) for _ in range(n)] if r == 0 else None
    dist.gather(_own(), parts, 0)
    assert parts is None or all(torch.equal(a.cpu(), b) for a, b in zip(parts, every, strict=True))
    y = _zeros(COUNT)
    dist.scatter(y, [_own() + k for k in range(n)] if r == 0 else None, 0)
    assert torch.equal(y.cpu(), every[0] + r)


def uneven() -> None:
    n, r = dist.get_world_size(), dist.get_rank()
    parts = [_zeros(s + 1) for s in range(n)]
    dist.all_gather(parts, _own(r + 1))
    assert [one.tolist() for one in parts] == [_pattern(s + 1, s).tolist() for s in range(n)]
    received = _zeros(sum(s + r for s in range(n)))
    splits = [s + r for s in range(n)], [r + d for d in range(n)]
    dist.all_to_all_single(received, _own(sum(splits[1])), *splits)
    wanted = []
    for s in range(n):
        lengths = [s + d for d in range(n)]
        wanted.append(_pattern(sum(lengths), s).split(lengths)[r])
    assert torch.equal(received.cpu(), torch.cat(wanted))
    for op, wanted_of in ((dist.ReduceOp.SUM, sum), (dist.ReduceOp.MAX, max)):
        part = _zeros(r + 1)
        dist.reduce_scatter(part, [_zeros(s + 1) + r + 10 * s for s in range(n)], op)
        assert part.tolist() == [float(wanted_of(k + 10 * r for k in range(n)))] * (r + 1)


def messages() -> None:
    n, r = dist.get_world_size(), dist.get_rank()
    after, before = (r + 1) % n, (r - 1) % n
    y = _zeros(COUNT)
    x = _late(r + 1)
    works = [dist.isend(x, after), dist.irecv(y, before)]
    assert not any(one.is_completed() for one in works)
    STREAMS.release()
    works[0].wait()
    assert torch.equal(works[1].get_future().wait()[0].cpu(), torch.full((COUNT,), before + 1.0))
    ring = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y.zero_(), before)]
    for one in dist.batch_isend_irecv(ring):
        one.wait()
    assert y.tolist() == [before + 1.0] * COUNT
    if r == 0:
        assert dist.recv(y) in range(1, n)
    elif r == 1:
        dist.send(_own(), 0)
    if r == 0:
        assert torch.equal(y.cpu(), _pattern(COUNT, 1))


def futures() -> None:
    n = dist.get_world_size()
    x = _late(dist.get_rank() + 1)
    future = dist.all_reduce(x, async_op=True).get_future()
    chained = future.then(lambda done: done.value()[0].clone())
    STREAMS.release()
    assert chained.wait().tolist() == _total(range(1, n + 1))


def coalesced() -> None:
    n, r = dist.get_world_size(), dist.get_rank()
    for asynchronous in (False, True):
        tensors = [_zeros(k + 1) + r for k in range(3)]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for one in tensors:
                dist.all_reduce(one)
        if asynchronous:
            manager.wait()
        assert all(set(one.tolist()) == {n * (n - 1) / 2} for one in tensors)


def barrier() -> None:
    """Checks that the host waits for what is in streams."""
    n = dist.get_world_size()
    x = _late(dist.get_rank() + 1)
    work = dist.all_reduce(x, async_op=True)
    threading.Timer(0.1, STREAMS.release).start()
    dist.barrier()
    assert STREAMS.idle()
    assert work.is_completed()
    assert x.tolist() == _total(range(1, n + 1))


def both() -> None:
    """Makes calls of both kinds of memory in one group, and refuses those of both at once."""
    n, r = dist.get_world_size(), dist.get_rank()
    x, y = torch.full((3,), float(r)), _zeros(3) + r
    works = [dist.all_reduce(one, async_op=True) for one in (x, y, x, y)]
    for one in works:
        one.wait()
    assert x.tolist() == y.tolist() == [n * n * (n - 1) / 2] * 3
    found: list[Any] = [None] * n
    dist.all_gather_object(found, r)
    assert found == list(range(n))
    backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
    assert backend is dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(ValueError, match=f"are on {DEVICE} and on cpu"):
        backend.allgather([[torch.zeros(3)] * n], [_zeros(3)])
    with pytest.raises(ValueError, match="on meta, of which there are no groups"):
        backend.send([torch.zeros(3, device="meta")], 0, 0)


def registered() -> None:
    for shape in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)):
        x = hccc.torch.empty(*shape, dtype=torch.float64, device=DEVICE)
        assert (x.shape, x.dtype, str(x.device)) == (torch.Size([2, 3]), torch.float64, DEVICE)
        assert not x.cpu().any()
    y = hccc.torch.empty(COUNT, device=KIND)
    y.copy_(_own())
    dist.all_reduce(y)
    assert torch.equal(y.cpu(), sum(_all()))
    backend = dist.group.WORLD._get_backend(torch.device(DEVICE))
    z = backend.allocate_tensor(5, dtype=torch.int64, device=torch.device(DEVICE))
    assert (z.shape, str(z.device)) == (torch.Size([5]), DEVICE)


def groups() -> None:
    n, r = dist.get_world_size(), dist.get_rank()
    for ranks in ([n - 1], list(range(n))):
        group = dist.new_group(ranks)
        if r in ranks:
            x = _zeros(3) + r
            dist.all_reduce(x, group=group)
            assert x.tolist() == [sum(ranks)] * 3
            if len(ranks) == 1:
                y = _zeros(3)
                dist.all_gather_into_tensor(y, _zeros(3) + 7, group=group)
                dist.all_reduce(y, dist._make_nccl_premul_sum(0.5), group=group)
                assert y.tolist() == [3.5] * 3
            dist.destroy_process_group(group)


def ddp() -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 3)
    plain = torch.nn.Linear(3, 3)
    plain.load_state_dict(model.state_dict())
    inputs = [torch.randn(4, 3) for _ in range(dist.get_world_size())]
    made = torch.nn.parallel.DistributedDataParallel(model.to(DEVICE))
    made(inputs[dist.get_rank()].to(DEVICE)).sum().backward()
    plain(torch.cat(inputs)).sum().div(len(inputs)).backward()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def functional() -> None:
    n = dist.get_world_size()
    reduced = FUNCTIONAL.all_reduce(_zeros(5) + 1, "sum", dist.group.WORLD)
    assert reduced.cpu().tolist() == [float(n)] * 5


def by_jobs() -> None:
    """Checks calls of jobs over vendor clusters of one rank, which wait for the current stream."""
    n, r, every = dist.get_world_size(), dist.get_rank(), _all()
    v = vendor_clusters([(f"rank {k}", [k], [k], [1]) for k in range(n)])
    group = dist.new_group()
    for op in (OpType.ALLREDUCE, OpType.ALLGATHER):
        hccc.torch.load(hetccl(v, op), group, micro_batches=[(0, 2)])
    x = _late(r + 1)
    work = dist.all_reduce(x, group=group, async_op=True)
    assert not work.is_completed()  # nor waited for
    STREAMS.release()
    work.wait()
    assert x.tolist() == _total(range(1, n + 1))
    gathered = _zeros(n * COUNT)
    work = dist.all_gather_into_tensor(gathered, _own(), group, async_op=True)
    assert work.wait() and work.is_success()
    assert torch.equal(gathered.cpu(), torch.cat(every))
    with torch.profiler.profile() as profile:
        dist.all_reduce(_zeros(3), group=group)
        dist.all_reduce(_zeros(3))
    names = [event.key for event in profile.key_averages()]
    plain = "standard_allreduce" if KIND == "cuda" else f"allreduce_{n}"  # libraries of the test
    assert {"hccc:by hetccl_allreduce", f"hccc:by {plain}"} <= set(names), names
    x = _zeros(3) + r
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5), group=group)
    assert x.tolist() == [n * (n - 1) / 4] * 3
    dist.destroy_process_group(group)


def several_vendors() -> None:
    """Checks that a group makes jobs by itself: ranks 0 and 1 have NCCL on one host, rank 2 nothing
    on another."""
    with torch.profiler.profile() as profile:
        dist.all_reduce(_zeros(3))
        dist.broadcast(_zeros(3), 2)
    names = {event.key for event in profile.key_averages()}
    assert {"hccc:by hetccl_allreduce", "hccc:by hetccl_broadcast"} <= names


def killed() -> None:
    """Checks that works, which nobody waits for on the host, have the error of a rank that died."""
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(1)  # rank 0 is in its next call
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(_own(), async_op=True)
    if "HCCC_TEST_APART" not in os.environ:  # of a job the host would wait
        work.wait()  # the current stream waits
    while not work.is_completed():
        time.sleep(0.01)
    assert not work.is_success()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        work.wait()
    if torch.__version__ >= "2.13":  # before, Python could not have it
        assert isinstance(work.exception(), dist.DistBackendError)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.all_reduce(_own())
