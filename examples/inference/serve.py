"""Answers prompts by a small transformer: some processes read them, others write the answers.

    torchrun --nproc-per-node 2 examples/inference/serve.py --beside gloo

The first half of the processes prefills: it computes keys and values of a prompt's words, and sends
them, block by block, while the next layer is computed. The other half decodes from them, word
by word, while the first reads the next prompt. In each half the heads are divided.
The answers are those of one process alone.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

import hccc.torch

LAYERS, WIDTH, HEADS, WORDS, BLOCK = 4, 128, 8, 256, 16
HEAD = WIDTH // HEADS


class Model:
    """Has a part of each layer's heads and neurons; `sum` adds what all parts computed."""

    def __init__(self, part, parts, group):
        made = torch.Generator().manual_seed(0)

        def weights(*shape):
            return torch.randn(shape, generator=made) / WIDTH**0.5

        self.words, self.group, self.heads = weights(WORDS, WIDTH), group, HEADS // parts
        self.layers = []
        for _ in range(LAYERS):
            heads = weights(3, parts, WIDTH // parts, WIDTH)[:, part].flatten(0, 1)
            out = weights(WIDTH, parts, WIDTH // parts)[:, part]
            up = weights(parts, 4 * WIDTH // parts, WIDTH)[part]
            down = weights(WIDTH, parts, 4 * WIDTH // parts)[:, part]
            self.layers.append((heads, out, up, down))

    def cache(self, length):
        """Makes room for keys and values: of each layer a tensor of blocks, which need no copy."""
        shape = (-(-length // BLOCK), 2, self.heads, BLOCK, HEAD)
        return [hccc.torch.empty(*shape) for _ in range(LAYERS)]

    def sum(self, x):
        if self.group is not None:
            dist.all_reduce(x, group=self.group)
        return x

    def next(self, words, begin, cache, computed=lambda layer: None):
        """Computes the word after these, which begin at a place in the text. The cache has keys and
        values of all before them, and then of them too; `computed` is told of each layer."""
        x, end = self.words[words], begin + len(words)
        for k, (heads, out, up, down) in enumerate(self.layers):
            new = linear(layer_norm(x, (WIDTH,)), heads).view(-1, 3, self.heads, HEAD)
            at = torch.arange(begin, end)
            cache[k][at // BLOCK, :, :, at % BLOCK] = new[:, 1:]
            known = cache[k].permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :end]
            query = new[:, 0].transpose(0, 1)
            found = scaled_dot_product_attention(query, *known, is_causal=len(words) > 1)
            computed(k)
            x = x + self.sum(linear(found.transpose(0, 1).flatten(1), out))
            x = x + self.sum(linear(gelu(linear(layer_norm(x, (WIDTH,)), up)), down))
        return linear(layer_norm(x[-1], (WIDTH,)), self.words).argmax()[None]


def written(model, word, begin, cache, length):
    """Returns the words that follow, from the first on."""
    words = [word]
    while len(words) < length:
        words.append(model.next(words[-1], begin, cache))
        begin += 1
    return torch.cat(words).tolist()


def prefill(model, prompts, length, to, group):
    """Reads prompts, and sends keys, values and the first word of each answer."""
    sent = []
    for prompt in prompts:
        cache = model.cache(len(prompt) + length)
        blocks = -(-len(prompt) // BLOCK)

        def send(layer, cache=cache, blocks=blocks):
            sent.extend(dist.isend(one, to, group) for one in cache[layer][:blocks])

        word = model.next(prompt, 0, cache, send)
        sent.append(dist.isend(word, to, group))
    for work in sent:
        work.wait()


def decode(model, prompts, length, source, group):
    """Receives keys and values of prompts, and writes the answers; returns them, and how many
    seconds after it began each first word was there."""
    began, answers, firsts = time.perf_counter(), [], []
    expected = []
    for prompt in prompts:
        cache = model.cache(len(prompt) + length)
        blocks = -(-len(prompt) // BLOCK)
        word = torch.zeros(1, dtype=torch.int64)
        whole = [*(one for layer in cache for one in layer[:blocks]), word]
        expected.append((cache, word, [dist.irecv(one, source, group) for one in whole]))
    for prompt, (cache, word, works) in zip(prompts, expected, strict=True):
        for work in works:
            work.wait()
        firsts.append(time.perf_counter() - began)
        answers.append(written(model, word, len(prompt), cache, length))
    return answers, firsts


def served(backend, prompts, length):
    """Answers prompts by both halves; returns the answers, and seconds until each first word and
    until the end."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    both = dist.new_group(backend=backend)
    ranks = [range(half), range(half, 2 * half)]
    groups = [dist.new_group(one, backend=backend) if half > 1 else None for one in ranks]
    model = Model(rank % half, half, groups[rank // half])
    found = None
    for _ in range(2):  # the first makes what is made once
        dist.barrier()
        began = time.perf_counter()
        if rank < half:
            prefill(model, prompts, length, rank + half, both)
        else:
            found = decode(model, prompts, length, rank - half, both)
        dist.barrier()
        seconds = time.perf_counter() - began
    everyone = [None] * (2 * half)
    dist.all_gather_object(everyone, found)
    return (*everyone[half], seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--words", type=int, default=16, help="of an answer")
    parser.add_argument("--beside", help="another backend, such as gloo")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("hccc")
    made = torch.Generator().manual_seed(1)
    lengths = torch.randint(BLOCK, 16 * BLOCK, (given.prompts,), generator=made).tolist()
    prompts = [torch.randint(0, WORDS, (length,), generator=made) for length in lengths]
    with torch.inference_mode():
        alone, expected = Model(0, 1, None), []
        for prompt in prompts:
            cache = alone.cache(len(prompt) + given.words)
            word = alone.next(prompt, 0, cache)
            expected.append(written(alone, word, len(prompt), cache, given.words))
        for backend in filter(None, ["hccc", given.beside]):
            answers, firsts, seconds = served(backend, prompts, given.words)
            if dist.get_rank() == 0:
                right = sum(a == b for a, b in zip(answers, expected, strict=True))
                first = 1e3 * sum(firsts) / len(firsts)
                print(f"{backend}: {right} of {len(prompts)} answers are those of one process")
                print(f"  first words after {first:.1f} ms in the mean, all {1e3 * seconds:.1f} ms")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
