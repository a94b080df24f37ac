"""Cases that train a small transformer with a backend, beside gloo in the same processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

from hccc.runtime.torch.installed import torch
from tests.torch.cases import GROUPS, joined

__all__ = ["joined"]
dist, nn = torch.distributed, torch.nn
Module: Any = nn.Module
mesh_of: Any = import_module("torch.distributed.device_mesh").DeviceMesh.from_group
fully_shard: Any = import_module("torch.distributed.fsdp").fully_shard
tensors = import_module("torch.distributed.tensor.parallel")
WIDTH, WORDS, LENGTH, BATCH, STEPS = 32, 64, 16, 2, 6


class Block(Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        normal = self.before(x)
        x = x + self.attend(normal, normal, normal, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Model(Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: Any) -> Any:
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _losses(
    backend: str, parallel: Callable[[Any, Any], Any], *, same_data: bool = False
) -> Sequence[float]:
    """Trains a model that is made parallel over a group, and returns its losses."""
    group = GROUPS[backend]
    torch.manual_seed(0)
    model = parallel(Model(), group)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    found = []
    for step in range(STEPS):
        rank = 0 if same_data else dist.get_rank()
        generator = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
        x = torch.randint(0, WORDS, (BATCH, LENGTH), generator=generator)
        loss = nn.functional.cross_entropy(model(x).view(-1, WORDS), (x.view(-1) * 7 + 3) % WORDS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total, group=GROUPS["gloo"])
        found.append(float(total) / dist.get_world_size())
    return found


def _as_gloo(parallel: Callable[[Any, Any], Any], *, same_data: bool = False) -> None:
    of_gloo = _losses("gloo", parallel, same_data=same_data)
    ours = _losses("hccc", parallel, same_data=same_data)
    assert of_gloo[-1] < of_gloo[0]  # it learns
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(of_gloo), rtol=1e-5, atol=1e-6)


def ddp() -> None:
    _as_gloo(lambda model, group: nn.parallel.DistributedDataParallel(model, process_group=group))


def detail() -> None:
    """Checks PyTorch's comparison of calls (TORCH_DISTRIBUTED_DEBUG=DETAIL) around the backend."""
    found = _losses("hccc", lambda model, _: nn.parallel.DistributedDataParallel(model))
    assert found[-1] < found[0]
    with pytest.raises(RuntimeError, match="mismatch"):
        dist.all_reduce(torch.ones(dist.get_rank() + 1))


def fsdp2() -> None:
    def sharded(model: Any, group: Any) -> Any:
        mesh = mesh_of(group, "cpu")
        for one in (*model.blocks, model):
            fully_shard(one, mesh=mesh)
            if group is GROUPS["hccc"]:  # memory of the backend: nothing is copied
                one.set_allocate_memory_from_process_group_for_comm(True)
        return model

    _as_gloo(sharded)


def tensor_parallel() -> None:
    plan = {"up": tensors.ColwiseParallel(), "down": tensors.RowwiseParallel()}

    def split(model: Any, group: Any) -> Any:
        mesh = mesh_of(group, "cpu")
        for block in model.blocks:
            tensors.parallelize_module(block, mesh, plan)
        return model

    _as_gloo(split, same_data=True)
