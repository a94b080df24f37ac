"""One rank of gloo of `cpu.py`: the same as `cpu_rank.cpp`, over PyTorch.

    python benchmarks/cpu_gloo.py PORT WORD RANK RANKS

Its interpreter needs torch and no hccc. Results are not checked: they are PyTorch's own.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any


def prepared(torch: Any, what: str, count: int) -> Callable[[], object]:
    """Returns a call with its buffers; raises where gloo has none."""
    dist = torch.distributed
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.zeros(count * n if what in ("reducescatter", "alltoall") else count)
    y = torch.zeros(count * n if what in ("allgather", "alltoall") else count)

    def shift() -> None:
        sent = dist.isend(x, (rank + 1) % n)
        dist.recv(y, (rank - 1) % n)
        sent.wait()

    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: dist.all_reduce(x),
        "allgather": lambda: dist.all_gather_into_tensor(y, x),
        "reducescatter": lambda: dist.reduce_scatter_tensor(y, x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "alltoall": lambda: dist.all_to_all_single(y, x),
        "sendrecv": shift,
    }
    return calls[what]


def main() -> None:
    """Does what the socket says."""
    port, key, rank, n = sys.argv[1:]
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=int(rank), world_size=int(n))
    call: Callable[[], object] = object
    with (
        socket.create_connection(("127.0.0.1", int(port))) as to,
        to.makefile("rw") as pipe,
    ):
        print(key, "gloo", rank, "gloo of PyTorch", torch.__version__, file=pipe, flush=True)
        for line in pipe:
            word, *rest = line.split()
            answer = "0"
            if word == "end":
                break
            if word == "prepare":
                try:
                    call = prepared(torch, rest[0], int(rest[2]))
                    call()
                except RuntimeError as error:
                    answer = f"{str(error).splitlines()[0]:.80}"
            elif word == "run":
                started = time.perf_counter()
                for _ in range(int(rest[0])):
                    call()
                answer = repr((time.perf_counter() - started) / int(rest[0]))
            else:
                call = object
            print(answer, file=pipe, flush=True)


if __name__ == "__main__":
    main()
