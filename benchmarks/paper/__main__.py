"""ResCCL's evaluation in hccc's simulator: published figures beside ours, and why they differ.

    python -m benchmarks.paper [--table 1|3|fig6|fig7|fig8|fig9|fig10b|fig11] [--json]

One simulator, one set of clusters (`examples/clusters/resccl-*`) and of parameters for all rows.
--micro-batch, --block and --sizes change it for all rows, to see how much hangs on it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.paper import expert, fig10b, synthesised, table1, table3
from benchmarks.paper.backends import PaperBench, PaperSetting
from benchmarks.paper.side_by_side import FigureTable

TABLES: dict[str, Callable[[PaperBench], FigureTable]] = {
    "1": table1.table,
    "3": table3.table,
    **{name: partial(expert.table, name=name) for name in expert.FIGURES},
    **{name: partial(synthesised.table, name=name) for name in synthesised.FIGURES},
    "fig10b": fig10b.table,
}
ORDER = ("1", "3", "fig6", "fig7", "fig8", "fig9", "fig10b", "fig11")


def main(arguments: list[str] | None = None) -> None:
    """Simulates and prints the tables asked for."""
    about = __doc__.splitlines()[0] if __doc__ else None
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=about)
    parser.add_argument("--table", choices=ORDER, help="one; default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--micro-batch", type=int, default=1024, help="KiB of a channel, all rows")
    parser.add_argument("--block", type=float, help="GB/s of a thread block, all rows")
    sizes = ",".join(str(size >> 20) for size in PaperSetting().sizes)
    parser.add_argument("--sizes", default=sizes, help="MiB of calls, ascending, all rows")
    chosen = parser.parse_args(arguments)
    calls = tuple(int(size) << 20 for size in chosen.sizes.split(","))
    setting = PaperSetting(calls, chosen.micro_batch << 10, chosen.block)
    with tempfile.TemporaryDirectory(prefix="hccc-") as place:
        bench = PaperBench(setting, Path(place))
        names = [chosen.table] if chosen.table else ORDER
        if chosen.json:
            found = [TABLES[name](bench).facts() for name in names]
            print(json.dumps({"setting": asdict(setting), "tables": found}, indent=2))
            return
        for name in names:
            print("\n".join(TABLES[name](bench).lines()))


if __name__ == "__main__":
    main()
