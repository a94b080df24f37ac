"""AllReduce between processes of this machine by both protocols, packets (LL) beside counters.

    python -m benchmarks.protocols [--ranks 2 4] [--sizes 8 512 4K 64K] [--rounds 40] [--calls 200]

float32, in place, by a direct program. The kernels are called in turn, `calls` times each a round,
by `protocols.cpp`, without a communicator. µs of a call, of the slowest rank: the median of the
rounds, and the best.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from hccc.base.building.compiler import find_compiler
from hccc.base.diagnostics import Source
from hccc.base.sizes import size_of
from hccc.driver.compilation import compile_text
from hccc.driver.options import Options
from hccc.driver.outputs import write

DRIVER = Path(__file__).with_suffix(".cpp")
PROGRAM = """ResCCLAlgo(nRanks={n}, nChannels=1, nWarps=1, AlgoName="{name}", OpType="Allreduce",
           GPUPerNode={n}, NICPerNode={n}):
    for r in range(nRanks):
        for d in range(1, nRanks):
            transfer((r + d) % nRanks, r, 0, r, rrc)
            transfer(r, (r + d) % nRanks, 1, r, recv)
"""
FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=off")


def built(folder: Path, ranks: int) -> Path:
    """Writes and builds the kernels of both protocols, and the program that calls them."""
    sources, names = [], []
    for protocol in ("simple", "ll"):
        name = f"{protocol}{ranks}"
        source = Source(f"{name}.rccl", PROGRAM.format(n=ranks, name=name))
        options = Options(protocol=protocol, max_sms=1)
        write(compile_text(source, options), folder / name, ["cpu"])
        sources.append(str(folder / name / f"{name}_cpu.cpp"))
        names += [f"-D{protocol.upper()}={name}", f'-D{protocol.upper()}_HEADER="{name}.h"']
        names.append(f"-I{folder / name}")
    program = folder / f"run{ranks}"
    include = files("hccc.runtime") / "include"
    command = [find_compiler(), *FLAGS, f"-DRANKS={ranks}", *names, f"-I{include}"]
    subprocess.run([*command, *sources, str(DRIVER), "-o", str(program)], check=True)
    return program


def main() -> None:
    """Prints a row for each number of ranks and size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=size_of, nargs="+", default=[8, 512, 4096, 16384, 65536])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--under", default="", help="a command before the program: chrt -f 1")
    given = parser.parse_args()
    print("| ranks | bytes | simple: median, best | ll: median, best | median over median |")
    print("|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in given.ranks:
            program = built(Path(folder), ranks)
            for size in given.sizes:
                words = [
                    *given.under.split(),
                    str(program),
                    str(size),
                    str(given.rounds),
                    str(given.calls),
                ]
                found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                median, best, ll, ll_best = map(float, found.split())
                times = f"{median:.2f}, {best:.2f} | {ll:.2f}, {ll_best:.2f}"
                print(f"| {ranks} | {size:,} | {times} | {median / ll:.2f} |", flush=True)


if __name__ == "__main__":
    main()
