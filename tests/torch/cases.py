"""Cases of collectives: hccc and gloo make each in the same processes, with equal results."""

from __future__ import annotations

import copy
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hccc.runtime.torch
import hccc.torch
from hccc.base.diagnostics import fail
from hccc.runtime.torch.extension import extension
from hccc.runtime.torch.installed import torch

dist: Any = torch.distributed
FUNCTIONAL = import_module("torch.distributed._functional_collectives")
GROUPS: dict[str, Any] = {}
Call = Callable[[Any, bool], Any]
Op = dist.ReduceOp


def _no_compiler() -> Any:
    raise fail("E412", "no C++ compiler found")


@contextmanager
def joined() -> Iterator[None]:
    """Makes a group of each backend."""
    torch.set_num_threads(1)
    if "HCCC_TEST_PYTHON" in os.environ:  # as if there were no compiler
        setattr(hccc.runtime.torch, "extension", _no_compiler)  # noqa: B010
    else:
        extension()  # or a mistake in it would test the one in Python
    dist.init_process_group("hccc")
    GROUPS.update(hccc=dist.group.WORLD, gloo=dist.new_group(backend="gloo"))
    yield
    dist.destroy_process_group()


def _rank() -> int:
    return int(dist.get_rank())


def _size() -> int:
    return int(dist.get_world_size())


def _random(*shape: int, dtype: Any = torch.float32, of: int | None = None) -> Any:
    """Makes a tensor that differs between ranks, of few integers: sums of any order are equal."""
    generator = torch.Generator().manual_seed(_rank() if of is None else of)
    return torch.randint(1, 5, shape, generator=generator).to(dtype)


def _equal(make: Callable[[], tuple[Call, Any]], *, by_gloo: bool = True) -> None:
    """Compares a call's results. make: returns the call, as call(group, async), and its results."""
    found = []
    for backend, asynchronous in (("gloo", False), ("hccc", False), ("hccc", True)):
        if backend == "gloo" and not by_gloo:
            continue
        call, results = make()
        work = call(GROUPS[backend], asynchronous)
        if asynchronous:
            work.wait()
            assert work.is_completed()
        found.append(results)
    for results in found[1:]:
        torch.testing.assert_close(results, found[0], rtol=0, atol=0)


def all_reduce() -> None:
    def one(shape: tuple[int, ...], dtype: Any, op: Any) -> tuple[Call, Any]:
        x = _random(*shape, dtype=dtype)
        return lambda g, a: dist.all_reduce(x, op, g, a), x

    for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
        _equal(partial(one, (1000,), torch.float32, op))
    for dtype in (torch.int64, torch.float64, torch.bfloat16):
        _equal(partial(one, (3, 5), dtype, Op.SUM))
    for shape in ((), (0,), (1,), (300_001,)):
        _equal(partial(one, shape, torch.float32, Op.SUM))


def all_reduce_types() -> None:
    """Checks what gloo refuses."""
    n = _size()
    x = torch.full((7,), float(_rank()))
    dist.all_reduce(x, Op.AVG)
    assert torch.equal(x, torch.full((7,), (n - 1) / 2))
    c = torch.full((3,), complex(1, _rank()))
    dist.all_reduce(c)
    assert torch.equal(c, torch.full((3,), complex(n, n * (n - 1) / 2)))
    # PyTorch refuses products of complex numbers before its backends get them.
    options, z = dist.AllreduceOptions(), torch.full((3,), 2j)
    options.reduceOp = Op.PRODUCT
    dist.group.WORLD.allreduce([z], options).wait()
    assert torch.equal(z, torch.full((3,), (2j) ** n))
    ops = ((Op.SUM, 1, 1), (Op.PRODUCT, 0, 1), (Op.BAND, 0, 1), (Op.BXOR, 1, n % 2))
    for op, of_one, of_all in ops:
        b = torch.tensor([_rank() == 0, True, False])
        dist.all_reduce(b, op)
        assert b.tolist() == [bool(of_one), bool(of_all), False], op
    for op, expected in ((Op.BOR, 2**n - 1), (Op.BAND, 0), (Op.BXOR, 2**n - 1), (Op.SUM, 2**n - 1)):
        bits = torch.full((5,), 1 << _rank(), dtype=torch.int16)
        dist.all_reduce(bits, op)
        assert bits.tolist() == [expected] * 5, op
    with pytest.raises(TypeError, match=r"no ReduceOp\.AVG of Bool"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), Op.AVG)


def premultiplied() -> None:
    """Sums what each rank gives times a factor of its own."""
    n, r = _size(), _rank()
    alone = dist.new_group([0])
    factors = [0.5 + k for k in range(n)]
    own, whole = dist._make_nccl_premul_sum(factors[r]), dist._make_nccl_premul_sum(3.0)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        given = [_random(n * 5, dtype=dtype, of=k) for k in range(n)]
        scaled = [one * factor for one, factor in zip(given, factors, strict=True)]
        expected = torch.stack(scaled).sum(0)
        for root in range(n):
            x = given[r].clone()
            dist.reduce(x, root, own)
            assert torch.equal(x, expected if r == root else given[r])
        x, part, uneven = given[r].clone(), torch.zeros(5, dtype=dtype), torch.zeros(1 + 4 * r)
        dist.all_reduce(x, own)
        assert torch.equal(x, expected)
        dist.reduce_scatter_tensor(part, given[r], own)
        assert torch.equal(part, expected[5 * r : 5 * r + 5])
        dist.reduce_scatter(uneven, [torch.ones(1 + 4 * k) for k in range(n)], own)
        assert torch.equal(uneven, torch.full_like(uneven, sum(factors)))
    counts = torch.full((3,), r, dtype=torch.int32)
    dist.all_reduce(counts, whole)
    assert counts.tolist() == [3 * n * (n - 1) // 2] * 3
    with pytest.raises(ValueError, match=r"0\.5 is no"):
        dist.all_reduce(counts, dist._make_nccl_premul_sum(0.5))
    with pytest.raises(TypeError, match=r"no ReduceOp\.PREMUL_SUM"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), whole)
    if r == 0:
        x = torch.ones(4)
        dist.all_reduce(x, whole, group=alone)
        assert x.tolist() == [3.0] * 4
    dist.barrier()


def premultiplied_more() -> None:
    """Checks factors and types that need the backend of C++."""
    n = _size()
    x = torch.ones(4)
    dist.all_reduce(x, dist._make_nccl_premul_sum(torch.tensor([2.0])))
    assert torch.equal(x, torch.full((4,), 2.0 * n))
    c = torch.full((3,), complex(1, _rank()))
    dist.all_reduce(c, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(c, torch.full((3,), complex(n / 2, n * (n - 1) / 4)))


def layouts() -> None:
    """Tensors that are not contiguous, or have a gradient."""
    n = _size()
    x = torch.arange(24.0).view(6, 4).t()
    dist.all_reduce(x)
    assert torch.equal(x, n * torch.arange(24.0).view(6, 4).t())
    y = torch.ones(3, requires_grad=True)
    dist.all_reduce(y)
    assert torch.equal(y.detach(), torch.full((3,), float(n)))
    wide = torch.zeros(n, 2, 6)[:, :, ::2]
    dist.all_gather_into_tensor(wide, torch.full((1, 2, 3), float(_rank())))
    assert [float(part.max()) for part in wide] == [float(r) for r in range(n)]
    odd = torch.ones(101, dtype=torch.uint8)[1:]
    dist.broadcast(odd, 0)


def broadcast() -> None:
    for root in range(_size()):

        def one(root: int = root) -> tuple[Call, Any]:
            x = _random(5, 3)
            return lambda g, a: dist.broadcast(x, root, g, a), x

        _equal(one)


def reduce() -> None:
    for root in range(_size()):

        def one(root: int = root) -> tuple[Call, Any]:
            x = _random(64)
            result = x if _rank() == root else torch.zeros(0)
            return lambda g, a: dist.reduce(x, root, Op.SUM, g, a), result

        _equal(one)


def all_gather() -> None:
    def lists() -> tuple[Call, Any]:
        outputs = [torch.zeros(3, 2) for _ in range(_size())]
        return lambda g, a: dist.all_gather(outputs, _random(3, 2), g, a), outputs

    def single() -> tuple[Call, Any]:
        output = torch.zeros(_size() * 3, 2)
        return lambda g, a: dist.all_gather_into_tensor(output, _random(3, 2), g, a), output

    def uneven() -> tuple[Call, Any]:
        outputs = [torch.zeros(r + 1) for r in range(_size())]
        return lambda g, a: dist.all_gather(outputs, _random(_rank() + 1), g, a), outputs

    _equal(lists)
    _equal(single)
    _equal(uneven, by_gloo=False)


def gather() -> None:
    for root in range(_size()):

        def one(root: int = root) -> tuple[Call, Any]:
            outputs = [torch.zeros(4) for _ in range(_size())] if _rank() == root else None
            return lambda g, a: dist.gather(_random(4), outputs, root, g, a), outputs or []

        _equal(one)


def scatter() -> None:
    for root in range(_size()):

        def one(root: int = root) -> tuple[Call, Any]:
            x = torch.zeros(4)
            inputs = list(_random(_size(), 4)) if _rank() == root else None
            return lambda g, a: dist.scatter(x, inputs, root, g, a), x

        _equal(one)


def reduce_scatter() -> None:
    def lists() -> tuple[Call, Any]:
        x = torch.zeros(5)
        inputs = list(_random(_size(), 5))
        return lambda g, a: dist.reduce_scatter(x, inputs, Op.SUM, g, a), x

    def single() -> tuple[Call, Any]:
        x, send = torch.zeros(5), _random(_size() * 5)
        return lambda g, a: dist.reduce_scatter_tensor(x, send, Op.SUM, g, a), x

    def uneven() -> tuple[Call, Any]:
        x = torch.zeros(_rank() + 1)
        inputs = [_random(r + 1) for r in range(_size())]
        return lambda g, a: dist.reduce_scatter(x, inputs, Op.SUM, g, a), x

    _equal(lists)
    _equal(single)
    _equal(uneven, by_gloo=False)


def all_to_all() -> None:
    def single() -> tuple[Call, Any]:
        x, send = torch.zeros(_size() * 2), _random(_size() * 2)
        return lambda g, a: dist.all_to_all_single(x, send, group=g, async_op=a), x

    _equal(single)


def all_to_all_uneven() -> None:
    n, r = _size(), _rank()

    def single() -> tuple[Call, Any]:
        received = torch.zeros(sum(s + r for s in range(n)), 3)
        send = _random(sum(r + d for d in range(n)), 3)
        splits = [s + r for s in range(n)], [r + d for d in range(n)]
        return lambda g, a: dist.all_to_all_single(received, send, *splits, g, a), received

    def lists() -> tuple[Call, Any]:
        outputs = [torch.zeros(s + 2 * r + 1) for s in range(n)]
        inputs = [_random(r + 2 * d + 1) for d in range(n)]
        return lambda g, a: dist.all_to_all(outputs, inputs, g, a), outputs

    _equal(single)
    _equal(lists, by_gloo=False)
    outputs = [torch.zeros(2) for _ in range(n)]
    dist.all_to_all(outputs, [torch.full((2,), float(r * n + d)) for d in range(n)])
    assert [float(one[0]) for one in outputs] == [float(s * n + r) for s in range(n)]


def messages() -> None:
    n, r = _size(), _rank()
    after, before = (r + 1) % n, (r - 1) % n
    for length in (3, 100_000):
        sent, got = torch.full((length,), float(r)), torch.zeros(length)
        works = [dist.isend(sent, after), dist.irecv(got, before)]  # a ring, all sends first
        for one in works:
            one.wait()
        assert torch.equal(got, torch.full((length,), float(before)))
        ring = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got.zero_(), before)]
        for one in dist.batch_isend_irecv(ring):
            one.wait()
        assert torch.equal(got, torch.full((length,), float(before)))
    # Tags pick messages, in whatever order they come; collectives go on meanwhile.
    works, tags = [], [torch.zeros(4) for _ in range(3)]
    if r == 0:
        works = [dist.isend(torch.full((4,), float(tag)), 1, tag=tag) for tag in (1, 2, 3)]
    if r == 1:
        works = [dist.irecv(tags[tag - 1], 0, tag=tag) for tag in (3, 1, 2)]
    dist.barrier()
    for one in works:
        one.wait()
    if r == 1:
        assert [float(one[0]) for one in tags] == [1.0, 2.0, 3.0]
    # From any rank.
    if r == 0:
        sources = set()
        for _ in range(n - 1):
            one = torch.zeros(2, 2).t()
            source = dist.recv(one)
            assert torch.equal(one, torch.full((2, 2), float(source)))
            sources.add(source)
        assert sources == set(range(1, n))
    else:
        dist.send(torch.full((2, 2), float(r)), 0)
    # A send that nobody awaits here goes on while this rank is in a collective.
    big = torch.full((300_000,), float(r))
    work = dist.isend(big, 1) if r == 0 else None
    if r == 1:
        dist.recv(big, 0)
        assert float(big[-1]) == 0
    dist.barrier()
    if work:
        work.wait()


def computing() -> None:
    """Computes between a send and a receive, so that each has begun alone; awaits either first."""
    n, r = _size(), _rank()
    after, before = (r + 1) % n, (r - 1) % n
    for send_first in (True, False):
        for wait_first in (0, 1):
            sent, got = torch.full((100_000,), float(r)), torch.zeros(100_000)
            makes = [lambda s=sent: dist.isend(s, after), lambda g=got: dist.irecv(g, before)]
            works = []
            for make in makes if send_first else reversed(makes):
                works.append(make())
                time.sleep(0.02)  # the stream makes it meanwhile
            dist.barrier()
            works[wait_first].wait()
            works[1 - wait_first].wait()
            assert torch.equal(got, torch.full_like(got, float(before)))


def apart() -> None:
    """Has messages that were made together done one by one: the first is awaited before the other
    rank sends the rest."""
    r, go = dist.get_rank(), torch.zeros(1)
    parts = [torch.full((5000,), float(k)) for k in range(40)]
    if r == 0:
        dist.send(parts[0], 1)
        dist.recv(go, 1, tag=1)
        for work in [dist.isend(one, 1) for one in parts[1:]]:
            work.wait()
    if r == 1:
        got = [torch.zeros(5000) for _ in parts]
        works = [dist.irecv(one, 0) for one in got]
        works[0].wait()
        assert torch.equal(got[0], parts[0])
        dist.send(go, 0, tag=1)
        for work in works:
            work.wait()
        assert torch.equal(torch.stack(got), torch.stack(parts))


def coalesced() -> None:
    n = _size()
    for asynchronous in (False, True):
        tensors = [torch.full((k + 1,), float(_rank())) for k in range(3)]
        with dist._coalescing_manager(async_ops=asynchronous) as manager:
            for one in tensors:
                dist.all_reduce(one)
        if asynchronous:
            manager.wait()
        assert all(torch.equal(t, torch.full_like(t, n * (n - 1) / 2)) for t in tensors)
    outputs = [torch.empty(n * 2) for _ in range(2)]
    with dist._coalescing_manager():
        for one in outputs:
            dist.all_gather_into_tensor(one, torch.full((2,), float(_rank())))
    assert outputs[1].tolist() == [float(r) for r in range(n) for _ in range(2)]


def objects() -> None:
    found: list[Any] = [None] * _size()
    dist.all_gather_object(found, {"rank": _rank()})
    assert [one["rank"] for one in found] == list(range(_size()))
    sent = [{"from": 0}, "text"] if _rank() == 0 else [None, None]
    dist.broadcast_object_list(sent, 0)
    assert sent == [{"from": 0}, "text"]
    got: list[Any] = [None]
    dist.scatter_object_list(got, list(range(_size())) if _rank() == 0 else [], 0)
    assert got == [_rank()]


def groups() -> None:
    """Subsets, split and one's own of one rank."""
    n, x = _size(), torch.ones(3)
    for ranks in ([0, n - 1], [n - 1], list(range(n))):
        group = dist.new_group(ranks)
        if _rank() in ranks:
            y = torch.full((3,), float(_rank()))
            dist.all_reduce(y, group=group)
            assert torch.equal(y, torch.full((3,), float(sum(ranks))))
            dist.destroy_process_group(group)
    whole = dist.new_group(backend="cpu:hccc")
    dist.all_reduce(x, group=whole)
    assert torch.equal(x, torch.full((3,), float(n)))


def futures() -> None:
    """Callbacks of futures, which make and await other calls."""
    n = _size()
    x, y = torch.ones(4), torch.ones(4)

    def then(future: Any) -> Any:
        dist.all_reduce(y, async_op=True).wait()
        return future.value()[0] * 2

    chained = dist.all_reduce(x, async_op=True).get_future().then(then)
    assert torch.equal(chained.wait(), torch.full((4,), 2.0 * n))
    assert torch.equal(y, torch.full((4,), float(n)))
    works = [dist.all_reduce(torch.ones(8), async_op=True) for _ in range(20)]
    dist.all_reduce(x)  # behind them
    assert all(one.is_completed() for one in works)


def threads() -> None:
    """Counts what runs collectives: the caller where it waits, else one thread for all that are
    asynchronous, while there is the group."""

    def count() -> int:
        found = 0
        for one in Path("/proc/self/task").glob("*/comm"):
            with suppress(OSError):  # it has ended
                found += one.read_text() == "hcccrt-stream\n"
        return found

    group, x = dist.new_group(backend="hccc"), torch.ones(5000)
    gc.collect()  # groups of other cases
    before = count()
    for _ in range(3):
        dist.all_reduce(x, group=group)
    assert count() == before
    for _ in range(3):
        works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(5)]
        for work in works:
            work.get_future().wait()
    assert count() == before + 1
    dist.destroy_process_group(group)
    while count() > before:  # it ends behind what it was told last
        time.sleep(0.01)


def _reached(x: Any) -> bool:
    """Tells whether the other ranks reach a tensor's memory."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    spans = (line.split()[0].split("-") for line in lines if "hccc-heap" in line)
    return any(int(begin, 16) <= x.data_ptr() < int(end, 16) for begin, end in spans)


def registered() -> None:
    for shape in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)):
        y = hccc.torch.empty(*shape, dtype=torch.int32)
        assert (y.shape, y.dtype, int(y.sum())) == (torch.Size([2, 3]), torch.int32, 0)
    assert hccc.torch.empty(()).shape == hccc.torch.empty().shape == torch.Size([])
    x = hccc.torch.empty(3, 4, dtype=torch.float64)
    assert x.shape == (3, 4)
    assert x.dtype == torch.float64
    dist.all_reduce(x.add_(1))
    assert torch.equal(x, torch.full((3, 4), float(_size()), dtype=torch.float64))
    backend = GROUPS["hccc"]._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    y = backend.allocate_tensor(5, dtype=torch.int64, device=torch.device("cpu"))
    assert y.shape == (5,)
    assert _reached(x)
    assert _reached(y)
    assert not _reached(torch.empty(5))


def allocated() -> None:
    """Has hccc allocate large tensors, and no longer; a child of fork() has them too."""
    hccc.torch.use_allocator(4096)
    try:
        x, small = torch.ones(5000), torch.ones(3)
        doubled = x * 2
        before = (x + doubled).data_ptr()
        assert torch.zeros(5000).data_ptr() == before  # memory is used again
        for size in (10, 5000):  # oneDNN takes and frees memory by itself
            assert torch.nn.functional.gelu(torch.full((size,), 100.0)).tolist() == [100.0] * size
        parts = [torch.empty(2048) for _ in range(_size())]  # one allocation behind another
        dist.all_gather(parts, torch.full((2048,), float(_rank())))
        assert [one[-1].item() for one in parts] == list(range(_size()))
        child = os.fork()
        if not child:
            x[0] = 7
            own = torch.full((5000,), 3.0)
            os._exit(int(float(own[4999]) != 3.0 or own.data_ptr() == before))
        assert os.waitpid(child, 0)[1] == 0
    finally:
        hccc.torch.use_allocator(0)
    assert [_reached(one) for one in (x, doubled, small)] == [True, True, False]
    assert x[:2].tolist() == [7, 1]
    assert not _reached(torch.ones(5000))
    dist.all_reduce(doubled)
    assert torch.equal(doubled, torch.full((5000,), 2.0 * _size()))


def split() -> None:
    """Splits a group, as dist.split_group does where there is an accelerator."""
    n, r = _size(), _rank()
    for k, parts in enumerate(([[0], list(range(1, n))], [[0, n - 1]])):
        ranks = next((part for part in parts if r in part), parts[0])
        part = dist.group.WORLD.split_group(ranks, group_name=f"split{k}")
        assert (part is None) == (r not in ranks)
        if part is not None:
            assert (part.rank(), part.size()) == (ranks.index(r), len(ranks))
            x = torch.full((3,), float(r))
            part.allreduce([x]).wait()
            assert torch.equal(x, torch.full((3,), float(sum(ranks))))
    dist.barrier()


def two_backends() -> None:
    """Has hccc for tensors of the CPU beside another backend for others, as NCCL is."""
    group = dist.new_group(backend="cpu:hccc,cuda:gloo")
    names = [group._get_backend(torch.device(device)).name() for device in ("cpu", "cuda")]
    assert names == ["hccc", "gloo"]
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((3,), float(_size())))
    found: list[Any] = [None] * _size()
    dist.all_gather_object(found, _rank(), group=group)
    assert found == list(range(_size()))
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="on meta"):
        GROUPS["hccc"]._get_backend(torch.device("cpu")).allreduce([torch.ones(3, device="meta")])


def beside_nccl() -> None:
    """Makes a group of hccc for tensors of the CPU and NCCL for those of GPUs, on a machine without
    one: PyTorch's error about NCCL comes through, and with gloo in NCCL's place the group works."""
    wanted, c10d = "cpu:hccc,cuda:nccl", import_module("torch.distributed.distributed_c10d")
    with pytest.raises((RuntimeError, ValueError), match="NCCL"):
        dist.new_group(backend=wanted)

    class InItsPlace(dist.ProcessGroupGloo):
        class Options:
            _timeout = None

        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            super().__init__(store, rank, size, options._timeout)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(c10d, "is_nccl_available", lambda: True)
        patched.setattr(c10d, "ProcessGroupNCCL", InItsPlace, raising=False)
        group = dist.new_group(backend=wanted)
    assert group._get_backend(torch.device("cpu")).name() == "hccc"
    assert group._get_backend(torch.device("cuda")).name() == "gloo"
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((3,), float(_size())))
    dist.barrier()


def profiled() -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.barrier()
    names = [event.key for event in profile.key_averages()]
    assert {"hccc:all_reduce", "hccc:barrier", f"hccc:by allreduce_{_size()}"} <= set(names)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["record_param_comms"] == counts[f"hccc:by allreduce_{_size()}"] == 3


def detail() -> None:
    """Checks PyTorch's comparison of calls (TORCH_DISTRIBUTED_DEBUG=DETAIL) around the backend."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    model(_random(2, 3)).sum().backward()
    gradients = [float(one.grad.sum()) for one in model.parameters()]
    found: list[Any] = [None] * _size()
    dist.all_gather_object(found, gradients)
    assert found == [gradients] * _size()
    with pytest.raises(RuntimeError, match="mismatch"):
        dist.all_reduce(torch.ones(_rank() + 1))


def loaded() -> None:
    """Loads kernels for one group, then for all: others have none of them."""
    one, other = dist.new_group(), dist.new_group()
    place = os.environ["HCCC_TEST_KERNELS"]

    def works(group: Any) -> bool:
        x = torch.ones(5)
        try:
            dist.all_reduce(x, group=group)
        except dist.DistBackendError as error:
            assert "Allreduce" in str(error), error
            return False
        return bool(torch.equal(x, torch.full((5,), float(_size()))))

    assert not works(one)
    hccc.torch.load(place, one)
    assert works(one)
    assert not works(other)
    hccc.torch.load(place)
    assert works(other)
    assert works(dist.group.WORLD)


def functional() -> None:
    tensor = import_module("torch.distributed.tensor")
    n, world = _size(), GROUPS["hccc"]
    reduced = FUNCTIONAL.all_reduce(torch.full((5,), 1.0), "sum", world)
    assert torch.equal(reduced + 0, torch.full((5,), float(n)))
    mesh = tensor.init_device_mesh("cpu", (n,))
    whole = torch.arange(20.0).view(5, 4)  # uneven
    matrix = tensor.distribute_tensor(whole, mesh, [tensor.Shard(0)])
    assert torch.equal(matrix.redistribute(mesh, [tensor.Shard(1)]).full_tensor(), whole)
    assert torch.equal((matrix @ matrix.t()).full_tensor(), whole @ whole.t())


def distributed_tensors() -> None:
    """Checks what DTensor's own helpers make, in each placement, and a model by tensor and
    sequence parallelism, backward too, against one process."""
    helpers = import_module("torch.testing._internal.distributed._tensor.common_dtensor")
    mesh = import_module("torch.distributed.tensor").init_device_mesh("cpu", (_size(),))
    a, b = _random(12, 24, of=7), _random(24, 12, of=8)
    for function in (torch.mm, lambda x, y: x + y.t(), lambda x, y: (x.sum(0), y.sum(1))[0]):
        each = helpers.DTensorConverter(mesh, (a, b), {})
        for args, _ in each:
            assert torch.equal(function(*args).full_tensor(), function(a, b))
        assert each.successful()
    for sequences in (False, True):
        torch.manual_seed(5)
        alone = helpers.Transformer(helpers.ModelArgs(dropout_p=0.0, n_heads=12, dim=24))
        # On CPUs attention is made of whole tensors.
        spread = helpers.Transformer.parallelize(copy.deepcopy(alone), mesh, sequences, True)
        tokens = torch.randint(0, 8, (4, 12), generator=torch.Generator().manual_seed(1))
        outputs = alone(tokens), spread(tokens)
        for one in outputs:
            one.square().sum().backward()
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
        for (name, want), (_, got) in zip(
            alone.named_parameters(), spread.named_parameters(), strict=True
        ):
            whole = got.grad.full_tensor() if hasattr(got.grad, "full_tensor") else got.grad
            torch.testing.assert_close(whole, want.grad, rtol=1e-3, atol=1e-4, msg=name)


def sharded_models() -> None:
    """Checks parameters and gradients of FSDP2 by the helpers of its own tests, some steps long;
    ranks have different batches."""
    helpers = import_module("torch.testing._internal.common_fsdp")
    mesh = import_module("torch.distributed.tensor").init_device_mesh("cpu", (_size(),))
    shard = import_module("torch.distributed.fsdp").fully_shard
    torch.manual_seed(3)
    alone = helpers.MLPStack(6)  # some lengths do not divide
    spread = copy.deepcopy(alone)
    for module in (*spread, spread):
        shard(module, mesh=mesh, reshard_after_forward=module is not spread)
    by = [torch.optim.SGD(x.parameters(), lr=0.01) for x in (alone, spread)]
    for step in range(3):
        batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + _rank()))
        for model, optimizer in zip((alone, spread), by, strict=True):
            optimizer.zero_grad()
            model(batch).sum().backward()
        for parameter in alone.parameters():
            dist.all_reduce(parameter.grad, group=GROUPS["gloo"])
            parameter.grad /= _size()
        helpers.check_sharded_parity(unittest_of_pytorch(), alone, spread)
        for optimizer in by:
            optimizer.step()
        helpers.check_sharded_parity(unittest_of_pytorch(), alone, spread)


def unittest_of_pytorch() -> Any:
    """Returns a test whose assertions know tensors."""
    return import_module("torch.testing._internal.common_utils").TestCase()


def monitored() -> None:
    GROUPS["hccc"].monitored_barrier()
    dist.barrier()


def sparse() -> None:
    def one() -> tuple[Call, Any]:
        rows = [[_rank(), 3], [0, 1]][: 1 + (_rank() > 0)]
        values = torch.ones(len(rows))
        x = torch.sparse_coo_tensor(torch.tensor(rows).t(), values, (8, 2))
        found: list[Any] = []

        def call(group: Any, asynchronous: bool) -> Any:
            work = dist.all_reduce(x, group=group, async_op=asynchronous)
            found.append(x)
            return work

        return call, found

    results = []
    for backend in ("gloo", "hccc"):
        call, found = one()
        call(GROUPS[backend], False)
        results.append(found[0].to_dense())
    assert torch.equal(results[0], results[1])


def refused() -> None:
    """Checks that what is wrong before anything moves leaves the group as it was."""
    with pytest.raises(ValueError, match="world_size"):
        dist.all_gather_into_tensor(torch.zeros(_size() + 1), torch.zeros(1))
    with pytest.raises(ValueError, match="of 1 tensors for"):
        dist.all_gather([torch.zeros(1)], torch.zeros(1))
    dist.barrier()
