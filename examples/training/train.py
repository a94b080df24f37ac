"""Trains a small transformer in parallel, with hccc's collectives, and beside it with another's.

    torchrun --nproc-per-node 2 examples/training/train.py --parallel ddp fsdp tp pp --beside gloo

ddp: every process has the model, and data of its own; gradients are averaged.
fsdp: the same, and each process keeps a part of every parameter (FSDP2).
tp: every process has a part of each layer's heads and neurons, and the same data.
2d: fsdp between rows of two processes that each do tp.
pp: every process has some of the layers, and sends what they make to the next.

--beside: trains from the same start by another backend too, and prints its losses and times.
--device cuda: on GPUs, which processes share where there are fewer.
--slow RANK TIMES: that process computes everything so many times, as on a slower device. ddp and
    fsdp train once more with the batch divided by `hccc.balance`, after a short run that measures.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import hccc.torch  # (makes the backend "hccc")

WIDTH, HEAD, WORDS, LENGTH = 64, 16, 64, 32
MICRO_BATCHES = 4  # of a batch that goes through a pipeline


class Attention(nn.Module):
    """Lets each word see those before it. Its heads may be spread over processes."""

    def __init__(self):
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        heads = [
            of(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for of in (self.queries, self.keys, self.values)
        ]
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of attention and one of neurons, each added to what it gets."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = Attention()
        self.neurons = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attend(self.before(x))
        return x + self.neurons(self.between(x))


def layers():
    """Makes the model, layer by layer: the same in every process."""
    torch.manual_seed(0)
    return [nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.Linear(WIDTH, WORDS)]


def batch(step, samples, parts, part):
    """Makes the words of a part of a step's data, and those to answer: 7 times each, and 3 more.

    parts: samples of each part; all are of one batch, however it is divided.
    """
    generator = torch.Generator().manual_seed(step)
    every = torch.randint(0, WORDS, (samples, LENGTH), generator=generator, device="cpu")
    x = every.split(parts)[part].to(torch.get_default_device())
    return x, (7 * x + 3) % WORDS


def loss_of(found, answer):
    """Computes the mean loss of what the model found."""
    return cross_entropy(found.flatten(0, 1), answer.flatten())


def split(model, mesh):
    """Spreads the heads and neurons of each block over the processes of a mesh."""
    plan = {
        **dict.fromkeys(("attend.queries", "attend.keys", "attend.values"), ColwiseParallel()),
        **{"attend.out": RowwiseParallel(), "neurons.0": ColwiseParallel()},
        "neurons.2": RowwiseParallel(),
    }
    for block in model[1:-1]:
        parallelize_module(block, mesh, plan)


def shard(model, mesh, backend):
    """Leaves a part of every parameter to each process of a mesh."""
    for one in (*model[1:-1], model):
        fully_shard(one, mesh=mesh)
        if backend == "hccc":  # its own memory: what is gathered and reduced is not copied
            one.set_allocate_memory_from_process_group_for_comm(True)


class Burden:
    """Computes what a step does again, as often as a slower device takes longer."""

    def __init__(self, slow):
        rank, times = slow
        self.times = int(times) - 1 if int(rank) == dist.get_rank() else 0
        self.model = nn.Sequential(*layers())

    def compute(self, x, answer, times):
        for _ in range(times):
            loss_of(self.model(x), answer).backward()

    def speed(self, size):
        """Measures in a short run how many samples this process computes in how many seconds."""
        x, answer = batch(0, size, [size], 0)
        self.compute(x, answer, 1)
        dist.barrier()
        began = time.perf_counter()
        self.compute(x, answer, 3 * (1 + self.times))
        return 3.0 * size, time.perf_counter() - began


def shares_of(burden, size):
    """Divides the batch of all processes by how fast each is."""
    speeds = [(0.0, 0.0)] * dist.get_world_size()
    dist.all_gather_object(speeds, burden.speed(size))
    return hccc.balance(speeds, size * len(speeds))


def made(how, backend, shares, burden):
    """Makes the model parallel by a backend, and the function that learns from a step's data."""
    rank, n = dist.get_rank(), dist.get_world_size()
    names, shape = {"2d": (("rows", "heads"), (n // 2, 2))}.get(how, (("all",), (n,)))
    mesh = init_device_mesh(
        torch.get_default_device().type,
        shape,
        mesh_dim_names=names,
        backend_override=dict.fromkeys(names, backend),
    )
    if how == "pp":
        return pipeline(mesh, shares[0])
    model = nn.Sequential(*layers())
    if how in ("tp", "2d"):
        split(model, mesh[names[-1]])
    if how in ("fsdp", "2d"):
        shard(model, mesh[names[0]], backend)
    if how == "ddp":
        model = DistributedDataParallel(model, process_group=mesh.get_group())
    part = {"tp": 0, "2d": rank // 2}.get(how, rank)
    parts = list(shares)[: {"tp": 1, "2d": n // 2}.get(how, n)]
    # Gradients are averaged over processes, so that the mean of each counts by its share.
    weight = parts[part] * len(parts) / sum(parts)

    def learn(step):
        x, answer = batch(step, sum(parts), parts, part)
        burden.compute(x, answer, burden.times)
        loss = loss_of(model(x), answer) * weight
        loss.backward()
        return loss.detach()

    return model, learn


def pipeline(mesh, size):
    """Makes a pipeline, of which this process has some layers, and the function that learns."""
    rank, n = dist.get_rank(), dist.get_world_size()
    all_ = layers()
    own = nn.Sequential(*all_[len(all_) * rank // n : len(all_) * (rank + 1) // n])
    stage = PipelineStage(own, rank, n, torch.get_default_device(), group=mesh.get_group())
    schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=loss_of)

    def learn(step):
        x, answer = batch(step, size, [size], 0)
        losses = []
        schedule.step(*([x] if rank == 0 else []), target=answer, losses=losses)
        # The last process alone knows the loss; the mean below is of all.
        return sum(losses, torch.zeros(())).detach() * n / max(1, len(losses))

    return own, learn


def train(how, backend, steps, shares, burden):
    """Trains the model; returns the mean loss of each step, and the median seconds of a step."""
    model, learn = made(how, backend, shares, burden)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    losses, times = [], []
    for step in range(steps):
        began = time.perf_counter()
        mean = learn(step)
        optimizer.step()
        optimizer.zero_grad()
        if mean.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(float(mean))
    return losses, sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    ways = ("ddp", "fsdp", "tp", "2d", "pp")
    parser.add_argument("--parallel", nargs="+", choices=ways, default=["ddp"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=8, help="samples of a process")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--beside", help="another backend, such as gloo")
    parser.add_argument("--slow", nargs=2, metavar=("RANK", "TIMES"), default=(0, 1))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.device == "cuda":  # processes share GPUs where there are fewer
        place = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        torch.cuda.set_device(place)
        torch.set_default_device(f"cuda:{place}")
    dist.init_process_group("hccc")
    burden = Burden(given.slow)
    equal = [given.batch] * dist.get_world_size()
    columns = {name: (name, equal) for name in ["hccc", *filter(None, [given.beside])]}
    if int(given.slow[1]) > 1:
        shares = shares_of(burden, given.batch)
        columns["balanced"] = ("hccc", shares)
        if dist.get_rank() == 0:
            print("shares", *shares)
    for how in given.parallel:
        shown = {k: v for k, v in columns.items() if k != "balanced" or how in ("ddp", "fsdp")}
        found = {
            name: train(how, backend, given.steps, shares, burden)
            for name, (backend, shares) in shown.items()
        }
        if dist.get_rank() == 0:
            print(f"{how:5} " + "  ".join(f"{name:>8}" for name in found))
            for step in sorted({*range(0, given.steps, 5), given.steps - 1}):
                losses = "  ".join(f"{losses[step]:8.5f}" for losses, _ in found.values())
                print(f"{step:5} {losses}")
            print("   ms " + "  ".join(f"{1e3 * seconds:8.2f}" for _, seconds in found.values()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
