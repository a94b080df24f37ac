"""How well `hccc profile --hosts` predicts what runs: hosts are network namespaces.

    python -m benchmarks.hosts [--hosts 2] [--ranks 2] [--gbit 1] [--time 1] [--json FILE]

Measures the hosts, simulates an Allgather on the cluster that this writes, and runs it there.
Printed: the rate of each pair of hosts, beside what TCP gets of such a line, and by size what the
Allgather took, what was simulated, and their ratio. Needs the right to make network namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import namespaces

TCP = 0.956  # of a line's bits are data in frames of 1,500 bytes
SIZES = ("64K", "16M")
PROGRAM = """ResCCLAlgo(nRanks={ranks}, AlgoName="all_to_all_hosts", OpType="Allgather",
           GPUPerNode={each}, NICPerNode=1):
    for r in range(nRanks):
        for step in range(nRanks - 1):
            transfer(r, (r + step + 1) % nRanks, step, r, recv)
"""


def hccc(*words: str) -> Any:
    """Returns what a command says as JSON; raises CalledProcessError when it fails."""
    command = (sys.executable, "-m", "hccc", *words, "--json")
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measured(n: int, each: int, gbit: float, seconds: float) -> dict[str, Any]:
    """Returns what `profile` says, and (size, µs that it took, µs simulated) of the Allgather."""
    os.environ |= {"HCCC_NETWORK": namespaces.DEVICE, "HCCC_RSH": "ip netns exec"}
    with tempfile.TemporaryDirectory() as made, namespaces.hosts(n, f"{gbit}gbit") as found:
        site, program = f"{made}/site.cluster", f"{made}/all.rccl"
        Path(program).write_text(PROGRAM.format(ranks=n * each, each=each))
        hosts = ",".join(f"{host.namespace}:{each}" for host in found)
        said = hccc("profile", "--hosts", hosts, "-o", site, "--time", str(seconds))
        sizes = ("-b", SIZES[0], "-e", SIZES[1], "-f", "4")
        ran = hccc("run", program, "--cluster", site, "--hosts", hosts, *sizes)["results"]
        simulated = hccc("sim", program, "--cluster", site, *sizes)["results"]
    times = [
        (one["size"], one["out_of_place"]["time"], other["time"])
        for one, other in zip(ran, simulated, strict=True)
    ]
    return {"exchanges": said["exchanges"], "times": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--gbit", type=float, default=1, help="of each host's line")
    parser.add_argument("--time", type=float, default=1, help="seconds of each measurement")
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    found = measured(said.hosts, said.ranks, said.gbit, said.time)
    rates = Table("hosts", "GB/s", "of TCP's", "α, µs")
    for one in found["exchanges"]:
        of = one["rate"] / (said.gbit / 8 * TCP) if len(one["hosts"]) == 2 else None
        ratio = "" if of is None else f"{of:.2f}"
        rates.add_row(str(one["hosts"]), f"{one['rate']:.3f}", ratio, f"{one['alpha']:.0f}")
    times = Table("size", "ran, µs", "simulated, µs", "simulated / ran")
    for size, took, simulated in found["times"]:
        times.add_row(str(size), f"{took:.0f}", f"{simulated:.0f}", f"{simulated / took:.2f}")
    Console().print(rates, times)
    if said.json:
        said.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
