"""Checks generated kernels on a GPU and times them against interpreted ones. See README.md.

python -m benchmarks.gpu.run [--quick] [--out DIR] [--budget SECONDS] [--dry-run]

Needs no network and no installation: prepare.py carries along what the machine lacks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from benchmarks.gpu.paths import find_packages


def main(words: Sequence[str]) -> int:
    """Runs the benchmark with hccc and its packages on Python's path; returns the exit status.

    1 when a result was wrong or a launch was lost, 2 where there is no GPU.
    """
    find_packages()
    return int(importlib.import_module("benchmarks.gpu.bench").main(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
