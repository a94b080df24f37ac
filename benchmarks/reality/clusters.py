"""clusters: the machines of machines.toml in the cluster language.

    python -m benchmarks.reality.clusters DIR

One file for each machine and number of nodes, as a user would write it: the tables are predicted
through it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.reality.tables import tables


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for t in tables():
        path = folder / f"{t.name}-{t.nodes}.cluster"
        path.write_text(t.cluster, "utf-8")


if __name__ == "__main__":
    main()
