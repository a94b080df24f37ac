"""Fits compiler/predict/nccl/calibration.toml to the tables marked `fit` in machines.toml.

    python -m benchmarks.reality.fit [--write]

Least squares of the logarithm of predicted over measured, robust against outliers; every table
weighs as the square root of its rows. Starts from the figures in the file, keeps them where the
tables say nothing (a pull of a tenth of a factor e). Needs scipy.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares  # type: ignore[import-untyped]

from benchmarks.reality.tables import tables
from hccc.predict.nccl.calibration import calibration

FILE = Path(__file__).parents[2] / "compiler/predict/nccl/calibration.toml"
PULL = 0.1
# Not fitted: what few tables say anything of, and estimates; nor is [link], the device library's.
FIXED = {"far", "allreduce", "congestion", "slice", "p2p_near", "sockets"}
ESTIMATED = {
    ("hop", "RoCE"),
    ("hop", "Ethernet"),
    ("base", "P2P"),
    ("simple", "Ampere"),
    ("simple", "AMD"),
    ("net_ll", "Slingshot"),  # of 2 to 8 nodes; at 512 NCCL leaves LL sooner than the model
}
WHOLE = {"net", "net_ll128"}  # shares that stay below 1


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--write", action="store_true", help="Write the file.")
    write = parser.parse_args().write
    start = {s: dict(v) for s, v in calibration().items()}
    keys = [
        (s, k)
        for s, v in start.items()
        for k in v
        if k not in FIXED and s != "link" and (s, k) not in ESTIMATED
    ]
    given = np.log([start[s][k] for s, k in keys])
    half = [t for t in tables() if t.fit and not t.context]

    def with_values(x: Any) -> dict[str, dict[str, float]]:
        values = {s: dict(v) for s, v in start.items()}
        for (s, k), value in zip(keys, np.exp(x), strict=True):
            values[s][k] = float(value)
        return values

    def residuals(x: Any) -> Any:
        values = with_values(x)
        parts = [PULL * (x - given)]
        for t in half:
            time = np.array([p.time_us for p in t.predicted(values)])
            parts.append(np.log(time / t.times) / len(t.times) ** 0.25)
        return np.concatenate(parts)

    shares = np.array([not WHOLE.isdisjoint({s, k}) for s, k in keys])
    best = least_squares(
        residuals,
        given,
        loss="soft_l1",
        f_scale=0.15,
        max_nfev=40,
        bounds=(given - 1.2, np.where(shares, np.log(0.98), given + 1.2)),
    )
    text, found = FILE.read_text("utf-8"), with_values(best.x)
    for s, k in keys:
        section = re.compile(rf"(\[{s}\][^\[]*?\n{k} = )\S+")
        text = section.sub(rf"\g<1>{found[s][k]:.4g}", text, count=1)
    print(f"cost {best.cost:.3f}, {len(half)} tables, {len(keys)} figures")
    for s, k in keys:
        print(f"{s}.{k}: {start[s][k]:.4g} -> {found[s][k]:.4g}")
    if write:
        FILE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
