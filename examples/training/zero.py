"""Trains the small transformer by DeepSpeed's ZeRO, with hccc's collectives.

    pip install deepspeed
    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 examples/training/zero.py --stages 1 3

Stage 1 divides the optimizer's state among the processes, stage 3 parameters and gradients too.
"""

import argparse
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from train import batch, layers, loss_of

import hccc.torch  # noqa: F401  (makes the backend "hccc")

SAMPLES = 8  # of a process

# DeepSpeed would compile an AllReduce of its own for processes of one host, and call it instead.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def train(stage, steps):
    """Trains the model in a stage of ZeRO; returns the mean loss of each step."""
    rank, n = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(*layers())
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    config = {
        "train_micro_batch_size_per_gpu": SAMPLES,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, dist_init_required=False
    )
    losses = []
    for step in range(steps):
        x, answer = batch(step, SAMPLES * n, [SAMPLES] * n, rank)
        loss = loss_of(engine(x), answer)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(float(mean))
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stages", nargs="+", type=int, choices=(1, 2, 3), default=[1, 3])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--backend", default="hccc", help="hccc, or gloo to compare")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(given.backend)
    for stage in given.stages:
        losses = train(stage, given.steps)
        if dist.get_rank() == 0:
            print(f"ZeRO {stage} ", *(f"{loss:.5f}" for loss in losses), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
