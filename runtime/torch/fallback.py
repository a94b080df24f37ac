"""fallback: the backend in Python, where the one of C++ cannot be compiled.

It makes the same calls, slower: PyTorch takes a group of Python in place of its own, with one
backend, without profiles of collectives and without TORCH_DISTRIBUTED_DEBUG.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hccc.base.diagnostics import UserError
from hccc.base.dtypes import MOVED_AS, reduces
from hccc.runtime.communicator import Communicator, CommunicatorError
from hccc.runtime.communicator.buffers import REDUCTIONS, TYPES
from hccc.runtime.communicator.premul import PremulSum, premul_sum
from hccc.runtime.device.stream import Stream
from hccc.runtime.torch.installed import torch
from hccc.runtime.torch.kernels import Finder, additions

dist: Any = torch.distributed
PREMUL = "premul_sum"
_OPS = {
    **{"SUM": "sum", "PRODUCT": "prod", "MAX": "max", "MIN": "min", "AVG": "avg"},
    **{"BAND": "band", "BOR": "bor", "BXOR": "bxor", "PREMUL_SUM": PREMUL},
}
_WORDS = {n: getattr(torch, name) for n, name in MOVED_AS.items()}
_TYPES = {torch.float8_e4m3fn: "float8e4m3", torch.float8_e5m2: "float8e5m2"}
Body = Callable[[], object]
Tensors = Sequence[Any]
_Op = str | PremulSum


def _raised(error: UserError) -> Exception:
    """Returns what PyTorch's users know instead: ValueError for a number that is no value of the
    type, else DistBackendError."""
    if error.problem.code == "E421":
        return ValueError(f"hccc: {error}")
    text = error.text if isinstance(error, CommunicatorError) else str(error)
    made: Exception = dist.DistBackendError(f"hccc: {text}")
    return made


def _reduction(dtype: Any, opts: Any) -> str | PremulSum:
    """Returns what reduces a type, by the ReduceOp of options. Raises TypeError."""
    wanted = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    op = str(getattr(wanted, "op", wanted).name)
    found = _OPS.get(op)
    if found is None or not reduces(_name(dtype), found):
        raise TypeError(f"hccc: no ReduceOp.{op} of {dtype}")
    # The factor is as PyTorch pickles it; one that is a tensor it refuses.
    return premul_sum(wanted.__getstate__()[1]) if found == PREMUL else found


def _name(dtype: Any) -> str:
    """Returns hccc's name of a type."""
    return _TYPES.get(dtype, str(dtype).removeprefix("torch."))


def _moved(flat: Any) -> Any:
    """Returns a flat tensor's memory as elements of the type that all of that width move as."""
    return flat.view(_WORDS[flat.element_size()])


def _flat(tensors: Tensors) -> Any:
    """Returns tensors as a flat one: their memory, where that is of one; else a copy."""
    if len(tensors) == 1:
        return tensors[0].contiguous().view(-1)
    return torch.cat([one.reshape(-1) for one in tensors]) if tensors else None


def _spread(flat: Any, tensors: Tensors) -> None:
    """Copies a flat tensor to tensors, unless it is their memory."""
    if len(tensors) == 1 and flat.data_ptr() == tensors[0].data_ptr():
        return
    for one, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        one.copy_(part.view(one.shape))


class PythonWork(dist.Work):  # type: ignore[misc]
    """A call: done when it is made, or in the group's stream."""

    def __init__(self, body: Body, results: Tensors) -> None:
        super().__init__()
        self._body, self._results = body, list(results)
        self._done = threading.Event()
        self._error: Exception | None = None
        self._future: Any = torch.futures.Future()
        self.source = -1

    def run(self, failed: CommunicatorError | None = None) -> None:
        """Makes the call, unless it has failed. Its error is the work's."""
        try:
            if failed is not None:
                raise failed
            self._body()
        except UserError as error:
            self._error = _raised(error)
        except Exception as error:
            self._error = error
        self._done.set()
        if self._error is None:
            self._future.set_result(self._results)
        else:
            self._future.set_exception(self._error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until it is done. Raises its error, and RuntimeError after the time."""
        seconds = timeout.total_seconds() if timeout else None
        if not self._done.wait(seconds or None):
            raise RuntimeError(f"hccc: a work timed out after {seconds} s")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Waits until it is done."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether it is done."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Returns whether it is done without an error."""
        return self._done.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """Returns its error."""
        return self._error

    def result(self) -> list[Any]:
        """Returns its tensors."""
        return self._results

    def source_rank(self) -> int:
        """Returns the rank that a receive got its message of."""
        return self.source

    def _source_rank(self) -> int:
        return self.source

    def get_future(self) -> Any:
        """Returns what is completed with the tensors."""
        return self._future


_Put = Callable[[Communicator, Stream], None]
_Finish = Callable[[PythonWork], object]


class PythonGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group of one backend, for tensors in host memory."""

    def __init__(
        self, communicator: Communicator | None, rank: int, size: int, name: str, limit: timedelta
    ) -> None:
        super().__init__(rank, size)
        self._comm, self._rank, self._n = communicator, rank, size
        self._find, self._limit, self._seen = Finder(name, size), limit, set[object]()
        self._name, self._about = name, ""
        self._stream: Stream | None = None
        self._left, self._changing = 0, threading.Lock()
        # Sends and receives have a communicator of their own, and go on together.
        self._beside = None if communicator is None else communicator.split(0, rank)
        self._sending = threading.Lock()
        self._message_streams: list[Stream] = []

    # What PyTorch asks

    def name(self) -> str:
        """Returns the backend's name."""
        return "hccc"

    getBackendName = name

    def rank(self) -> int:
        """Returns this rank."""
        return self._rank

    getRank = rank

    def size(self) -> int:
        """Returns the number of ranks."""
        return self._n

    getSize = size

    def setGroupName(self, name: str) -> None:
        """Sets the group's name."""
        self._name = name

    def getGroupName(self) -> str:
        """Returns the group's name."""
        return self._name

    def setGroupDesc(self, text: str) -> None:
        """Sets the group's description."""
        self._about = text

    def getGroupDesc(self) -> str:
        """Returns the group's description."""
        return self._about

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the deadline of later calls."""
        self._limit = timeout

    def _get_backend(self, device: object) -> PythonGroup:
        """Returns the group itself: it has no backend besides. PyTorch asks since 2.15."""
        return self

    def shutdown(self) -> None:
        """Ends the group after its calls; the second time nothing."""
        for stream in (self._stream, *self._message_streams):
            if stream is not None:
                stream.destroy()
        self._message_streams.clear()
        for comm in (self._comm, self._beside):
            if comm is not None:
                comm.destroy()
        self._stream = self._comm = self._beside = None

    def abort(self) -> None:
        """Ends the group at once, at every rank."""
        for comm in (self._comm, self._beside):
            if comm is not None:
                comm.abort()
        self._comm = self._beside = None

    # Calls

    def _go(self, opts: Any, body: Body, results: Tensors) -> PythonWork:
        """Makes a call now, or puts it into the stream where it is asynchronous."""
        asynchronous = getattr(opts, "asyncOp", True)
        asked = getattr(opts, "timeout", timedelta(0))
        limit = asked if asked > timedelta(0) else self._limit

        def within() -> None:
            with torch.no_grad():
                if self._comm is not None:
                    self._comm.set_timeout(limit.total_seconds())
                elif self._n > 1:
                    raise dist.DistBackendError("hccc: the process group has ended")
                body()

        work = PythonWork(within, results)
        with self._changing:
            direct = not asynchronous and not self._left
            self._left += 1
        if direct:
            self._end(work)
            return work
        if self._stream is None:
            self._stream = Stream()
        self._stream.then(lambda: self._end(work))
        return work

    def _end(self, work: PythonWork) -> None:
        work.run()
        with self._changing:
            self._left -= 1

    def _call(
        self, name: str, sent: Tensors, received: Tensors, op: _Op = "", root: int = -1
    ) -> None:
        """Makes a collective: `sent` and `received` are its buffers, in order."""
        buffers = [_flat(sent), None]
        if sent is received:
            buffers[1] = buffers[0]
        elif received:
            one = received[0]
            whole = len(received) == 1 and one.is_contiguous()
            length = sum(t.numel() for t in received)
            buffers[1] = one.view(-1) if whole else torch.empty(length, dtype=one.dtype)
        given = [b if b is None or op else _moved(b) for b in buffers]
        of = next(b for b in given if b is not None)
        if self._comm is None:
            if given[0] is not None and given[1] is not None:
                given[1].copy_(given[0] if isinstance(op, str) else given[0] * op.scalar)
        elif of.numel():
            self._load(name, of.dtype, op, root)
            if not isinstance(op, str) and self._find.job(name, root):  # jobs have no factors
                given, op = [given[0] * op.scalar, given[1]], "sum"
            words: dict[str, Any] = {"op": op} if op else {}
            if root >= 0:
                words["root"] = root
            arrays = given[:1] if name == "broadcast" else given
            getattr(self._comm, name)(*arrays, **words)
        if received:
            _spread(buffers[1], received)

    def _load(self, name: str, dtype: Any, op: _Op, root: int) -> None:
        """Loads the job or the libraries of one's own before the first call that they fit."""
        assert self._comm is not None
        op = op if isinstance(op, str) else PREMUL
        key = (name, dtype, op, root, additions())
        if key not in self._seen:
            self._seen.add(key)
            job = self._find.job(name, root)
            if job is not None and job not in self._seen:
                self._seen.add(job)
                vendor, file, cut = job.vendor, job.file, job.micro_batches
                self._comm.load(job.job, vendor=vendor, file=file, micro_batches=cut)
            number = TYPES.index(_name(dtype))
            for path in self._find(name, root, number, REDUCTIONS.index(op) if op else -1):
                self._comm.load(Path(path))

    def _call_v(
        self, name: str, sent: Tensors, received: Tensors, *blocks: Tensors, op: _Op = ""
    ) -> None:
        """Makes an uneven collective. blocks: tensors of the lengths that it takes."""
        flat = _flat(sent)
        into = torch.empty(sum(t.numel() for t in received), dtype=flat.dtype)
        given = [flat, into] if op else [_moved(flat), _moved(into)]
        if self._comm is None:
            into.copy_(flat if isinstance(op, str) else flat * op.scalar)
        else:
            self._load(name, given[0].dtype, op, -1)
            lengths = ([t.numel() for t in of] for of in blocks)
            words: dict[str, Any] = {"op": op} if op else {}
            getattr(self._comm, name)(*given, *lengths, **words)
        _spread(into, received)

    def _exchange(self, sent: Tensors, received: Tensors) -> None:
        """Sends a tensor to each rank, and receives one of each, of any lengths."""
        self._call_v("all_to_all_v", sent, received, sent, received)

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> PythonWork:
        """Reduces tensors into every rank."""
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if any(one.is_sparse for one in given):
            raise TypeError("hccc: sparse tensors need the backend of C++")
        ops = [_reduction(one.dtype, opts) for one in given]

        def body() -> None:
            for one, op in zip(given, ops, strict=True):
                own = [one.detach()]
                self._call("all_reduce", own, own, op)

        return self._go(opts, body, given)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> PythonWork:
        """Copies the root's tensors to every rank."""
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        root = opts if isinstance(opts, int) else opts.rootRank

        def body() -> None:
            for one in given:
                own = [one.detach()]
                self._call("broadcast", own, own, root=root)

        return self._go(opts, body, given)

    def reduce(self, tensors: Tensors, opts: Any = None) -> PythonWork:
        """Reduces a tensor into the root's."""
        own, root = [tensors[0].detach()], opts.rootRank
        op = _reduction(own[0].dtype, opts)
        into = own if self._rank == root else []
        return self._go(opts, lambda: self._call("reduce", own, into, op, root), tensors)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None
    ) -> PythonWork:
        """Gathers tensors of all ranks in a list, of any lengths."""
        one = isinstance(inputs, torch.Tensor)
        given, lists = (inputs, outputs) if one else (inputs[0], outputs[0])
        sent, received = [given.detach()], [t.detach() for t in lists]
        if len(received) != self._n:
            raise ValueError(f"hccc: a list of {len(received)} tensors for {self._n} ranks")

        def body() -> None:
            if len({t.numel() for t in received}) > 1:
                self._call_v("all_gather_v", sent, received, received)
            else:
                self._call("all_gather", sent, received)

        return self._go(opts, body, lists)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> PythonWork:
        """Gathers each tensor of all ranks in one."""
        pairs = [(o.detach(), i.detach()) for o, i in zip(outputs, inputs, strict=True)]
        if any(o.numel() != i.numel() * self._n for o, i in pairs):
            raise ValueError("hccc: output tensor size must be world_size times input tensor size")

        def body() -> None:
            for output, given in pairs:
                self._call("all_gather", [given], [output])

        return self._go(opts, body, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> PythonWork:
        """Gathers a tensor of all ranks in one."""
        return self.all_gather_single_coalesced([output], [given], opts)

    _allgather_base = all_gather_single

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> PythonWork:
        """Gathers tensors of all ranks at the root."""
        root, sent = opts.rootRank, [inputs[0].detach()]
        received = [t.detach() for t in outputs[0]] if self._rank == root else []
        return self._go(opts, lambda: self._call("gather", sent, received, root=root), received)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> PythonWork:
        """Copies a tensor of the root's to each rank."""
        root, received = opts.rootRank, [outputs[0].detach()]
        sent = [t.detach() for t in inputs[0]] if self._rank == root else []
        return self._go(opts, lambda: self._call("scatter", sent, received, root=root), received)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> PythonWork:
        """Reduces a tensor for each rank, of any lengths."""
        sent, received = [t.detach() for t in inputs[0]], [outputs[0].detach()]
        op = _reduction(received[0].dtype, opts)

        def body() -> None:
            if len({t.numel() for t in sent}) == 1:
                return self._call("reduce_scatter", sent, received, op)
            self._call_v("reduce_scatter_v", sent, received, sent, op=op)

        return self._go(opts, body, received)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> PythonWork:
        """Reduces a part of each tensor for each rank."""
        pairs = [(o.detach(), i.detach()) for o, i in zip(outputs, inputs, strict=True)]
        ops = [_reduction(given.dtype, opts) for _, given in pairs]
        if any(i.numel() != o.numel() * self._n for o, i in pairs):
            raise ValueError("hccc: input tensor must be the output's size times world_size")

        def body() -> None:
            for (output, given), op in zip(pairs, ops, strict=True):
                self._call("reduce_scatter", [given], [output], op)

        return self._go(opts, body, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> PythonWork:
        """Reduces a part of a tensor for each rank."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    _reduce_scatter_base = reduce_scatter_single

    def all_to_all_single(
        self, output: Any, given: Any, of_output: Any, of_input: Any, opts: Any = None
    ) -> PythonWork:
        """Sends a part of a tensor to each rank. of_output, of_input: the rows of each part."""
        into, of = output.detach(), given.detach()
        if not (of_output or of_input):
            return self._go(opts, lambda: self._call("all_to_all", [of], [into]), [output])
        parts = [
            list(t.split(list(rows) or [len(t) // self._n] * self._n))
            for t, rows in ((into, of_output), (of, of_input))
        ]
        return self._go(opts, lambda: self._exchange(parts[1], parts[0]), [output])

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> PythonWork:
        """Sends a tensor to each rank."""
        sent, received = [t.detach() for t in inputs], [t.detach() for t in outputs]
        return self._go(opts, lambda: self._exchange(sent, received), outputs)

    def barrier(self, opts: Any = None) -> PythonWork:
        """Waits for all ranks."""
        own = [torch.zeros(1)]
        return self._go(opts, lambda: self._call("all_reduce", own, own, "sum"), [])

    def _post(self, put: _Put, finish: _Finish, tensors: Tensors) -> PythonWork:
        """Makes a send or receive in a stream, beside the others."""

        def end() -> None:
            beside.check()
            finish(work)

        work = PythonWork(end, tensors)
        if self._beside is None:
            raise dist.DistBackendError("hccc: the process group has ended")
        beside = self._beside
        with self._sending:
            stream = next((one for one in self._message_streams if one.idle), None)
            if stream is None:
                stream = Stream()
                self._message_streams.append(stream)
            try:
                beside.set_timeout(self._limit.total_seconds())
                put(beside, stream)
            except CommunicatorError as error:
                work.run(error)
            else:
                stream.then(work.run)
        return work

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> PythonWork:
        """Sends a tensor to a rank."""
        plain = _moved(_flat([tensors[0].detach()]))

        def put(comm: Communicator, stream: Stream) -> None:
            comm.send(plain, peer, tag, stream)

        return self._post(put, lambda _: None, tensors)

    def recv(self, tensors: Tensors, peer: int | None, tag: int = 0) -> PythonWork:
        """Receives a tensor of a rank, None: of any."""
        own = tensors[0].detach()
        flat = torch.empty(own.numel(), dtype=own.dtype)
        got: list[Any] = []

        def finish(work: PythonWork) -> None:
            work.source = got[0].source
            _spread(flat, [own])

        def put(comm: Communicator, stream: Stream) -> None:
            got.append(comm.recv(_moved(flat), peer, tag, stream))

        return self._post(put, finish, tensors)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> PythonWork:
        """Receives a tensor of any rank."""
        return self.recv(tensors, None, tag)
