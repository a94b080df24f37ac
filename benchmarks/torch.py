"""Calls of torch.distributed by hccc and by gloo, in the same processes.

    python -m benchmarks.torch [--ranks 2 4] [--collectives all_reduce ...] [--sizes 1K 64K 1M 16M]
                               [--rounds 5] [--json FILE]

float32; a size is the bytes of the larger buffer of a rank. What is timed is the whole
`dist.X(...)`: `wait` with a call that waits, `async` with one that is awaited at once, `own` with
tensors of `hccc.torch.empty`. Systems take turns within a round; a figure is the median of the
rounds of the slowest rank's time, a ratio gloo's over hccc's (above 1: hccc is faster). `ddp` is a
step of a small model, of 2.4 million parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from hccc.base.sizes import size_of

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
    *("all_to_all", "all_to_all_uneven"),
)
SIZES = ("1K", "64K", "1M", "16M")
MODES = ("wait", "async", "own")
MOST_S = 0.15  # about how long a system may take in one round
Step = Callable[[], object]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def measured(n: int, collectives: Sequence[str], sizes: Sequence[str], rounds: int) -> Any:
    """Runs the ranks; returns rows of (collective, bytes, mode, gloo's µs, hccc's µs)."""
    port = str(_free_port())
    words = [*collectives, "--sizes", *sizes, "--rounds", str(rounds)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.torch", "--rank", "--collectives", *words],
            env={
                **os.environ,
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"},
                **{"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n)},
                **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]
    texts = [one.communicate()[0] for one in ranks]
    if any(one.returncode for one in ranks):
        raise SystemExit(f"a rank failed: {[one.returncode for one in ranks]}")
    return json.loads(texts[0].splitlines()[-1])


def _tensor(torch: Any, elements: int, *, own: bool) -> Any:
    made = import_module("hccc.torch").empty(elements) if own else torch.empty(elements)
    return made.fill_(1)


def _call(torch: Any, name: str, bytes: int, group: Any, mode: str) -> Step:
    """Returns a function that makes a collective of so many bytes a rank."""
    dist, asynchronous = torch.distributed, mode == "async"
    n = dist.get_world_size()
    block = max(1, bytes // 4 // n)
    whole = _tensor(torch, block * n, own=mode == "own")
    part = _tensor(torch, block, own=mode == "own")
    rank = dist.get_rank()
    rows = [block + (-1) ** (rank + r) * (block // 2) for r in range(n)]  # to each rank, and of it
    sent, got = (_tensor(torch, max(sum(rows), block * n), own=mode == "own") for _ in range(2))
    calls: dict[str, Step] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group, async_op=asynchronous),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group, async_op=asynchronous),
        "all_gather": lambda: dist.all_gather_single(whole, part, group, asynchronous),
        "reduce_scatter": lambda: dist.reduce_scatter_single(
            part, whole, group=group, async_op=asynchronous
        ),
        "all_to_all": lambda: dist.all_to_all_single(
            got[: block * n], sent[: block * n], group=group, async_op=asynchronous
        ),
        "all_to_all_uneven": lambda: dist.all_to_all_single(
            got[: sum(rows)], sent[: sum(rows)], rows, rows, group, asynchronous
        ),
    }
    call = calls[name]

    def awaited() -> None:
        work: Any = call()
        work.wait()

    return awaited if asynchronous else call


def _step(torch: Any, group: Any) -> Step:
    """Returns a function that trains a small model for a step, by DDP over a group."""
    torch.manual_seed(0)
    nn = torch.nn
    layers = [
        nn.Linear(512, 1536),
        nn.GELU(),
        nn.Linear(1536, 1024),
        nn.GELU(),
        nn.Linear(1024, 64),
    ]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    optimizer, x = torch.optim.SGD(model.parameters(), 1e-3), torch.randn(8, 512)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def _times(torch: Any, steps: Sequence[Step], rounds: int) -> Sequence[float]:
    """Returns the µs of each step: the median of rounds, in which they take turns."""
    dist = torch.distributed
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds + 1):
        for k, step in enumerate(steps):
            calls = 1 if turn == 0 else max(1, min(200, int(MOST_S / (times[k][0] * 1e-6))))
            dist.barrier(group=dist.group.WORLD)
            began = time.perf_counter()
            for _ in range(calls):
                step()
            took = torch.tensor((time.perf_counter() - began) / calls * 1e6)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            times[k].append(float(took))
            if turn == 0:  # the first call may build: again
                step()
                began = time.perf_counter()
                step()
                took = torch.tensor((time.perf_counter() - began) * 1e6)
                dist.all_reduce(took, dist.ReduceOp.MAX)
                times[k] = [float(took)]
    return [statistics.median(one[1:]) for one in times]


def ranks_part(collectives: Sequence[str], sizes: Sequence[str], rounds: int) -> None:
    """Measures in one rank's process; rank 0 prints the rows as JSON."""
    torch: Any = import_module("torch")
    import_module("hccc.torch")
    torch.set_num_threads(1)
    dist = torch.distributed
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "hccc": dist.new_group(backend="hccc")}
    rows: list[tuple[str, int, str, float, float]] = []
    for name in collectives:
        if name == "ddp":
            times = _times(torch, [_step(torch, group) for group in groups.values()], rounds)
            rows.append((name, 0, "wait", times[0], times[1]))
            continue
        for size in sizes:
            bytes = int(size_of(size))
            wanted = [("gloo", "wait"), ("gloo", "async"), *(("hccc", mode) for mode in MODES)]
            steps = [_call(torch, name, bytes, groups[b], mode) for b, mode in wanted]
            found = dict(zip(wanted, _times(torch, steps, rounds), strict=True))
            for mode in MODES:
                gloos = found["gloo", "async" if mode == "async" else "wait"]
                rows.append((name, bytes, mode, gloos, found["hccc", mode]))
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def _table(n: int, rows: Any) -> Table:
    table = Table(box=box.MARKDOWN, title=f"{n} ranks: gloo's time over hccc's")
    for name in ("call", "bytes", "gloo µs", *MODES):
        table.add_column(name, justify="left" if name == "call" else "right")
    by: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for name, bytes, mode, gloos, ours in rows:
        by.setdefault((name, bytes), {})[mode] = (gloos, ours)
    for (name, bytes), found in by.items():
        ratios = [f"{found[m][0] / found[m][1]:.1f}" if m in found else "" for m in MODES]
        table.add_row(name, f"{bytes:,}" if bytes else "", f"{found['wait'][0]:.0f}", *ratios)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--collectives", nargs="+", default=[*COLLECTIVES, "ddp"])
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        return ranks_part(given.collectives, given.sizes, given.rounds)
    console, results = Console(width=100), {}
    for n in given.ranks:
        results[n] = measured(n, given.collectives, given.sizes, given.rounds)
        console.print(_table(n, results[n]))
    if given.json:
        given.json.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
