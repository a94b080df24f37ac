"""Trains a small transformer by DistributedDataParallel, whose gradients hccc reduces.

    torchrun --nproc-per-node 2 examples/training/ddp.py [--steps 20] [--beside gloo]

Each process has other data, and the same model after each step. --beside: trains the same model
from the same start by another backend too, and prints its losses and times beside hccc's.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hccc.torch  # noqa: F401  (makes the backend "hccc")

WIDTH, WORDS, LENGTH, BATCH = 64, 64, 32, 8


class Block(nn.Module):
    """A layer of attention and one of neurons, each added to what it gets."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.neurons = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        normal = self.before(x)
        x = x + self.attend(normal, normal, normal, need_weights=False)[0]
        return x + self.neurons(self.between(x))


def batch(step):
    """Makes this process's words of a step, and those to answer: 7 times the word, and 3 more."""
    turn = step * dist.get_world_size() + dist.get_rank()
    x = torch.randint(0, WORDS, (BATCH, LENGTH), generator=torch.Generator().manual_seed(turn))
    return x, (7 * x + 3) % WORDS


def train(group, steps):
    """Trains the model over a group; returns the mean loss of each step, and a step's seconds."""
    torch.manual_seed(0)
    layers = [nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.Linear(WIDTH, WORDS)]
    model = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses, times = [], []
    for step in range(steps):
        x, answer = batch(step)
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), answer.flatten())
        loss.backward()  # DDP reduces gradients meanwhile
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(float(mean))
    return losses, sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--beside", help="another backend, such as gloo")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("hccc")
    groups = {"hccc": dist.group.WORLD}
    if given.beside:
        groups[given.beside] = dist.new_group(backend=given.beside)
    found = {name: train(group, given.steps) for name, group in groups.items()}
    if dist.get_rank() == 0:
        print("step  " + "  ".join(f"{name:>8}" for name in found))
        for step in sorted({*range(0, given.steps, 5), given.steps - 1}):
            losses = "  ".join(f"{losses[step]:8.5f}" for losses, _ in found.values())
            print(f"{step:4}  {losses}")
        print("ms    " + "  ".join(f"{1e3 * seconds:8.2f}" for _, seconds in found.values()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
