"""Compares the speed of an algorithm on several clusters, with hccc as a library.

    python compare_sites.py algorithm.rccl one.cluster other.cluster ...

Compiles the algorithm for each cluster that has its number of ranks, predicts a few sizes, and
names the bottleneck of the largest.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import hccc

SIZES = (1 << 20, 1 << 24, 1 << 28)


def compare(algorithm: Path, sites: list[Path]) -> list[str]:
    """Returns a line for each cluster: busbw (GB/s) by size, and the bottleneck."""
    lines = []
    for site in sites:
        cluster = hccc.load_cluster(site)
        try:
            compiled = hccc.compile(algorithm, cluster=cluster)
        except hccc.UserError as error:  # another number of ranks, or no route for a transfer
            lines.append(f"{site.stem:<20} {error.problem.code}: {error.problem.message}")
            continue
        predicted = hccc.simulate(compiled, SIZES)
        rates = "  ".join(f"{result.busbw:8.2f}" for result in predicted.results)
        why = hccc.explain(compiled, SIZES[-1]).gap.bottleneck
        lines.append(f"{site.stem:<20} {rates}  {why.name if why else 'nothing'}")
    return lines


def main() -> None:
    """Compares the clusters named on the command line."""
    parser = ArgumentParser(description="Which of several clusters runs an algorithm fastest?")
    parser.add_argument("algorithm", type=Path, metavar="ALGO")
    parser.add_argument("sites", type=Path, metavar="CLUSTER", nargs="+")
    given = parser.parse_args()
    print("\n".join(compare(given.algorithm, given.sites)))


if __name__ == "__main__":
    main()
