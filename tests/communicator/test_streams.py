"""Calls in streams: when they run, in which order, their errors, and graphs."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hccc.base.diagnostics import UserError
from hccc.runtime.communicator import Communicator, CommunicatorError, group
from hccc.runtime.communicator.communicator import Result
from hccc.runtime.communicator.runtime_library import library as runtime
from hccc.runtime.device.device_layer import library as device_layer
from hccc.runtime.device.stream import Stream
from tests.communicator.conftest import Library
from tests.communicator.world import Lost, alone, in_threads, loaded, run, start
from tests.emit import plans
from tests.marks import slow

COUNT, RANKS = 1003, 3

Run = Callable[..., list[Any]]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Builds the device layer first: ranks that have met do not wait for a compiler."""
    device_layer()


@pytest.fixture(params=["threads", slow("processes")])
def everywhere(request: pytest.FixtureRequest) -> Run:
    """Runs a body at every rank."""
    return in_threads if request.param == "threads" else run


def pattern(rank: int, turn: int = 0) -> Any:
    """Returns elements that differ by rank, place and turn; sums of a few are exact."""
    return (np.arange(COUNT, dtype=np.int32) * 31 + rank * 7919 + turn * 104_729) % 100_003


def total(turn: int = 0) -> Any:
    return sum(pattern(r, turn) for r in range(RANKS))


def gate(stream: Stream) -> threading.Event:
    """Stops a stream until the returned event is set."""
    made = threading.Event()
    stream.then(lambda: made.wait(20))
    return made


def buffers(c: Communicator, turn: int = 0, shared: bool = True) -> tuple[Any, Any]:
    send = c.empty(COUNT, "int32") if shared else np.empty(COUNT, np.int32)
    receive = c.empty(COUNT, "int32") if shared else np.zeros(COUNT, np.int32)
    send[:] = pattern(c.rank, turn)
    return send, receive


def differing(communicator: Communicator, sums: Path) -> list[str]:
    """Makes a call of another length at rank 1, in a stream, and right calls behind it. Returns
    what the rank is told of it, once."""
    c = loaded(communicator, sums)
    told = []
    with Stream() as stream:
        for turn in range(2):
            (a, b), (x, y) = buffers(c), buffers(c, turn)
            for _ in range(2):
                c.all_reduce(a[: COUNT - (c.rank == 1)], b[: COUNT - (c.rank == 1)], stream=stream)
                stream.synchronize()
                with pytest.raises(CommunicatorError) as caught:
                    c.check()
                told.append(caught.value.text)
            c.all_reduce(a[: COUNT - (c.rank == 1)], b[: COUNT - (c.rank == 1)], stream=stream)
            c.all_reduce(x, y, stream=stream)
            stream.synchronize()
            assert (y == total(turn)).all(), (turn, y[:4], total(turn)[:4], c.error)
            with pytest.raises(CommunicatorError):
                c.check()
            c.check()
    return told


@pytest.mark.slow
def test_a_call_that_differs_costs_nothing(sums: Path, everywhere: Run) -> None:
    for rank, told in enumerate(everywhere(RANKS, differing, sums)):
        assert len(told) == 4
        for text in told:
            assert text.startswith(f"rank {rank}, in a stream: rank "), text
            assert f"of {COUNT} int32" in text and f"of {COUNT - 1} int32" in text, text


def queued(communicator: Communicator, sums: Path) -> bool:
    """Checks that a call returns before it runs, and runs after the stream's earlier work."""
    c = loaded(communicator, sums)
    with Stream() as stream:
        for shared in (True, False):
            x, y = buffers(c, 0, shared)
            x[:] = 0
            held = gate(stream)
            stream.then(lambda x=x: np.copyto(x, pattern(c.rank)))  # type: ignore[misc]
            c.all_reduce(x, y, stream=stream)
            stream.then(lambda y=y: np.multiply(y, 2, out=y))  # type: ignore[misc]
            assert not c.done and not y.any()
            held.set()
            stream.synchronize()
            assert c.done and np.array_equal(y, 2 * total())
    return True


@pytest.mark.slow
def test_a_call_runs_when_its_stream_comes_to_it(sums: Path, everywhere: Run) -> None:
    assert everywhere(RANKS, queued, sums) == [True] * RANKS


@pytest.mark.slow
def test_streams_of_the_cpu_whichever_platform_a_thread_has(sums: Path) -> None:
    nowhere = {"HCCC_PLATFORM": "cuda", "HCCC_CUDA_LIBRARY": "/nowhere", "HCCC_HEAP": "host"}
    assert run(RANKS, queued, sums, environment=nowhere) == [True] * RANKS


def other_device_layers(sums: Path) -> Any:
    """Returns the errors for another layer's stream and for a library that is no layer."""
    ranks = Communicator.init_all(RANKS)
    with group():
        for one in ranks:
            loaded(one, sums)
    x, call = np.zeros(1, np.int32).ctypes.data, runtime().call
    with Stream() as stream:
        found: list[Any] = [call("AllReduce", x, x, 1, 2, 0, ranks[0].handle, stream.handle)]
        found += [runtime().last_error(), call("SetDeviceLayer", ctypes.CDLL(None)._handle)]
    return [*found, runtime().last_error()]


@pytest.mark.slow
def test_streams_are_of_one_device_layer(sums: Path) -> None:
    result, text, wrong, why = alone(other_device_layers, sums)
    assert result == Result.INVALID_ARGUMENT and "none of the device layer's" in text
    assert wrong == Result.INVALID_ARGUMENT and "the library has no hcccrt" in why


def inside(communicator: Communicator, sums: Path) -> str:
    """Checks a host function's calls: without a stream they work, with one they fail."""
    c = loaded(communicator, sums)
    x, y = buffers(c)
    texts: list[str] = []

    def host() -> None:
        c.all_reduce(x, y)
        try:
            c.all_reduce(x, y, stream=stream)
        except CommunicatorError as error:
            texts.append(f"{error.result.name} {error.text}")

    with Stream() as stream:
        stream.then(host)
        stream.synchronize()
    assert np.array_equal(y, total()) and c.error is Result.SUCCESS
    return texts[0]


@pytest.mark.slow
def test_calls_of_host_functions(sums: Path, everywhere: Run) -> None:
    for text in everywhere(RANKS, inside, sums):
        assert "INVALID_USAGE" in text and "the stream refuses" in text, text


def mixed(communicator: Communicator, sums: Path) -> bool:
    """Checks streams entered in turn, some late, with calls without a stream among them: calls take
    effect in the order in which they were made, the same at all ranks."""
    c = loaded(communicator, sums)
    with Stream() as one, Stream() as two:
        x, y = buffers(c)
        held = gate((one, two)[c.rank % 2])  # another stream is late at each rank
        for turn in range(8):
            c.all_reduce(x, y, stream=(one, two)[turn % 2])
            c.all_reduce(y, x, op="max", stream=(two, one)[turn % 2])
        threading.Timer(0.1, held.set).start()
        c.all_reduce(x, op="max")  # waits for all these
        assert c.done
        wanted = total()
        for _ in range(7):
            wanted = wanted * RANKS
        assert np.array_equal(x, wanted)
    return True


@pytest.mark.slow
def test_calls_of_one_communicator_keep_their_order(sums: Path, everywhere: Run) -> None:
    assert everywhere(RANKS, mixed, sums) == [True] * RANKS


def crossed(communicator: Communicator, sums: Path) -> bool:
    """Enqueues calls of two communicators in two streams, in other orders at other ranks: all can
    end only if they run at the same time."""
    first = loaded(communicator, sums)
    second = first.split(0)
    assert second
    with second, Stream() as one, Stream() as two:
        loaded(second, sums)
        jobs = [(first, one), (second, two)]
        made = {}
        for c, stream in jobs[:: -1 if first.rank % 2 else 1]:
            made[stream] = [(turn, *buffers(c, turn)) for turn in range(10)]
            for _, x, y in made[stream]:
                c.all_reduce(x, y, stream=stream)
        one.synchronize()
        two.synchronize()
        for of in made.values():
            assert all(np.array_equal(y, total(turn)) for turn, _, y in of)
    return True


@pytest.mark.slow
def test_communicators_run_at_the_same_time(sums: Path, everywhere: Run) -> None:
    assert everywhere(RANKS, crossed, sums) == [True] * RANKS


def temporary(communicator: Communicator, sums: Path) -> bool:
    """Checks that arrays of queued calls are kept, and arrays of finished calls are not."""
    c = loaded(communicator, sums)
    with Stream() as stream:
        results = []
        held = gate(stream)
        for turn in range(8):
            results.append(np.zeros(COUNT, np.int32))
            c.all_reduce(pattern(c.rank, turn), results[-1], stream=stream)
        assert len(c._kept._waiting) == 8
        held.set()
        stream.synchronize()
        assert all(np.array_equal(y, total(turn)) for turn, y in enumerate(results))
        held = gate(stream)
        c.all_reduce(pattern(c.rank), results[0], stream=stream)
        assert len(c._kept._waiting) == 1
        held.set()
        stream.synchronize()
    return True


@pytest.mark.slow
def test_arrays_of_calls_in_streams_are_kept(sums: Path, everywhere: Run) -> None:
    assert everywhere(RANKS, temporary, sums) == [True] * RANKS


def refused(communicator: Communicator, sums: Path) -> list[tuple[Result, str]]:
    """Checks that errors known when a call is made are raised then, and lose nothing."""
    c = loaded(communicator, sums)
    x = c.empty(COUNT, "int32")
    whole = np.zeros(2 * COUNT, np.int32)
    with Stream() as stream:
        wrongs: list[Callable[[], None]] = [
            lambda: c.all_reduce(whole[:COUNT], whole[1 : COUNT + 1], stream=stream),
            lambda: c.broadcast(x, 0, stream=stream),
            lambda: c.all_reduce(x, stream=0x1234),
        ]
        found = []
        for wrong in wrongs:
            with pytest.raises(CommunicatorError) as caught:
                wrong()
            found.append((caught.value.result, caught.value.text))
        x[:] = pattern(c.rank)
        c.all_reduce(x, stream=stream)
        stream.synchronize()
        assert np.array_equal(x, total()) and c.error is Result.SUCCESS
    return found


@pytest.mark.slow
def test_arguments_are_checked_at_once(sums: Path, everywhere: Run) -> None:
    overlap, missing, stream = everywhere(RANKS, refused, sums)[0]
    assert overlap[0] is Result.INVALID_ARGUMENT and "overlap" in overlap[1]
    assert missing[0] is Result.INVALID_USAGE and "no library is loaded" in missing[1]
    assert stream[0] is Result.INVALID_ARGUMENT and "stream" in stream[1]


def late_error(communicator: Communicator, sums: Path) -> Any:
    """Gives the communicator up at one rank: no call fails, every rank's communicator does."""
    c = loaded(communicator, sums)
    x = c.empty(COUNT, "int32")
    with Stream() as stream:
        c.all_reduce(x, stream=stream)
        if c.rank == 1:
            stream.synchronize()
            time.sleep(0.5)  # in which others have queued what follows
            c.abort()
            return ""
        c.all_reduce(x, stream=stream)
        c.all_reduce(x, stream=stream)  # in the queue of a communicator that will be lost
        stream.synchronize()
        assert c.error is Result.ABORTED
        with pytest.raises(CommunicatorError) as caught:
            c.check()
        with pytest.raises(CommunicatorError) as again:
            c.all_reduce(x, stream=stream)
        assert again.value.result is caught.value.result is Result.ABORTED
        c.destroy()
        return caught.value.text


@pytest.mark.slow
def test_errors_in_streams_are_asynchronous_and_stay(sums: Path, everywhere: Run) -> None:
    first, _, last = everywhere(RANKS, late_error, sums)
    assert "rank 1" in first and "rank 1" in last, (first, last)


def ended(communicator: Communicator, sums: Path, how: str) -> Any:
    c = loaded(communicator, sums)
    other = c.split(0)
    assert other
    with loaded(other, sums), Stream() as stream:
        x, y = buffers(c)
        held = gate(stream)
        c.all_reduce(x, y, stream=stream)
        started = time.monotonic()
        if how == "abort":
            other.all_reduce(np.zeros_like(x))  # all ranks have called
            c.abort()
            assert time.monotonic() - started < 5
            held.set()
            stream.synchronize()
            return not y.any()
        threading.Timer(0.2, held.set).start()
        if how == "finalize":
            c.finalize()
            with pytest.raises(CommunicatorError, match="finalized"):
                c.all_reduce(x)
        else:
            c.destroy()
        assert held.is_set()
        return np.array_equal(y, total())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["abort", slow("finalize"), slow("destroy")])
def test_queued_calls_at_the_end(sums: Path, how: str, everywhere: Run) -> None:
    assert everywhere(RANKS, ended, sums, how) == [True] * RANKS


def stalled(communicator: Communicator, sums: Path) -> Any:
    """Holds one rank's stream before a call: every rank is told, the held rank too."""
    c = loaded(communicator, sums)
    x = c.empty(COUNT, "int32")
    with Stream() as stream:
        held = gate(stream) if c.rank == 1 else None
        c.all_reduce(x, stream=stream)
        started = time.monotonic()
        try:
            c.all_reduce(x)
        except CommunicatorError as error:
            return Lost(error.result, error.text, time.monotonic() - started)
        finally:
            if held:
                held.set()
    raise AssertionError("nobody was told")


def completed(communicator: Communicator, sums: Path) -> bool:
    """Checks that functions and events in a stream come when its calls are done."""
    c = loaded(communicator, sums)
    x, y = buffers(c)
    seen: list[Any] = []
    with Stream() as stream, Stream() as other:
        held = gate(stream)
        c.all_reduce(x, y, stream=stream)
        stream.then(lambda: seen.append(y.copy()))
        event = stream.record()
        other.wait(event)
        other.then(lambda: seen.append("other"))
        assert not event.reached and not seen
        held.set()
        event.synchronize()
        assert event.reached
        other.synchronize()
        assert seen[1:] == ["other"] and np.array_equal(seen[0], total())
        assert stream.record().milliseconds_since(event) >= 0
        event.destroy()
        with pytest.raises(UserError, match="E472"):
            event.synchronize()
    return True


@pytest.mark.slow
def test_completion_without_a_thread_of_ones_own(sums: Path, everywhere: Run) -> None:
    assert everywhere(RANKS, completed, sums) == [True] * RANKS


def test_functions_of_a_graph_live_as_long_as_its_launches() -> None:
    calls: list[int] = []
    with Stream() as stream:
        with stream.capture() as graph:
            stream.then(lambda: calls.append(1))
        held = gate(stream)
        for _ in range(3):
            graph.launch(stream)
        graph.destroy()
        gc.collect()
        held.set()
        stream.synchronize()
    assert calls == [1] * 3


@pytest.mark.slow
def test_a_stream_that_does_not_come_to_a_call(sums: Path) -> None:
    found = start(RANKS, stalled, sums, environment={"HCCC_TIMEOUT": "1.5"}).outcomes()
    for lost in found.values():
        assert isinstance(lost, Lost) and lost.result is Result.TIMEOUT
        assert "timed out" in lost.text and "rank 1" in lost.text
        assert lost.seconds < 4


def graphs(communicator: Communicator, sums: Path, star: Path) -> bool:
    """Checks that captured calls do not run at once, but at every launch, among other calls."""
    c = loaded(communicator, sums, star)
    with Stream() as stream:
        x, y = buffers(c)
        with stream.capture() as graph:
            c.all_reduce(x, y, stream=stream)
            stream.then(lambda: np.add(y, 1, out=y))
            c.run("star", y, y, COUNT, stream=stream)
        stream.synchronize()
        assert not y.any() and c.done
        for turn in range(5):
            x[:] = pattern(c.rank, turn)
            graph.launch(stream)
            if turn % 2:
                c.all_reduce(y, op="max", stream=stream)
            stream.synchronize()
            assert np.array_equal(y, total(turn) + 1), turn
        with pytest.raises(CommunicatorError) as caught, stream.capture():
            c.all_reduce(x[1:], x[:-1], stream=stream)
        assert caught.value.result is Result.INVALID_ARGUMENT
        c.destroy()
        y[:] = 0
        graph.launch(stream)  # its calls have ended with their communicator
        stream.synchronize()
        assert (y == 1).all()
        graph.destroy()
    return True


def test_graphs(sums: Path, library: Library, everywhere: Run) -> None:
    star = library(plans.compiled(plans.broadcast(RANKS, 1)))
    assert everywhere(RANKS, graphs, sums, star) == [True] * RANKS


def of_one_thread(sums: Path) -> bool:
    """Checks three ranks of one thread, each with a stream: no call waits for a later one."""
    ranks = Communicator.init_all(RANKS)
    assert [(c.rank, c.n_ranks) for c in ranks] == [(r, RANKS) for r in range(RANKS)]
    with group():
        for c in ranks:
            loaded(c, sums)
    streams = [Stream() for _ in ranks]
    made = [[buffers(c, turn, bool(turn % 2)) for c in ranks] for turn in range(6)]
    for of in made:
        for c, stream, (x, y) in zip(ranks, streams, of, strict=True):
            c.all_reduce(x, y, stream=stream)
    for stream in streams:
        stream.synchronize()
    for turn, of in enumerate(made):
        assert all(np.array_equal(y, total(turn)) for _, y in of)
    for c, stream in zip(ranks, streams, strict=True):
        c.destroy()
        stream.destroy()
    return True


def test_one_thread_with_streams_of_all_ranks(sums: Path) -> None:
    assert alone(of_one_thread, sums)
