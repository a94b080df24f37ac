"""What ranks on several hosts do: `python -m tests.torch.apart` with torchrun's variables."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

from hccc.runtime.torch.installed import torch

dist = torch.distributed


def main() -> None:
    """Passes a tensor around, among all ranks and among those of a group over both hosts."""
    import_module("hccc.torch")
    dist.init_process_group("hccc", timeout=timedelta(seconds=60))
    rank, n = dist.get_rank(), dist.get_world_size()
    print("around", _around(rank, list(range(n)), None), flush=True)
    group = dist.new_group([0, n - 1])
    if rank in (0, n - 1):
        print("group", _around(rank, [0, n - 1], group), flush=True)
    dist.destroy_process_group()


def _around(rank: int, ranks: list[int], group: Any) -> int:
    """Returns the number of the rank before, which it has sent."""
    at = ranks.index(rank)
    sent, came = torch.full((70_000,), float(rank)), torch.zeros(70_000)
    sending = dist.isend(sent, ranks[(at + 1) % len(ranks)], group=group)
    dist.recv(came, ranks[at - 1], group=group)
    assert sending is not None
    sending.wait()
    assert bool((came == came[0]).all())
    return int(came[0])


if __name__ == "__main__":
    main()
