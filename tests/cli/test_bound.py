"""`hccc bound`: the figures of the library's clusters, as text, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hccc as library
from hccc.ir.op_type import NAMES as COLLECTIVES
from tests.cli.commandline import Hccc, process

EIGHT = [name for name in COLLECTIVES if name != "sendrecv"]


def test_one_collective(hccc: Hccc) -> None:
    given = ("bound", "heteccl-h20-4x2+8", "--collective", "allgather", "-b", "1G")
    code, out, err = hccc(*given)
    assert (code, err) == (0, "")
    for said in (
        "3 nodes, 16 GPUs, 16 H20",
        "Allgather of 1 GiB: no schedule beats",
        "3/4 of 1 GiB into node1 at 200 GB/s",
        "NIC 0 of node1, in",
        "algbw 266.67 GB/s, exactly 800/3",
        "over trees     algbw 266.67 GB/s, the same",
        "limited by     NICs",
    ):
        assert said in out


def test_what_is_left_of_a_cluster(hccc: Hccc) -> None:
    """Without a NIC of its four, three fill node1."""
    given = ("bound", "heteccl-h20-4x2+8", "--collective", "allgather", "-b", "1G", "--json")
    found = [
        json.loads(hccc(*given, *more)[1])["bounds"][0]["cut"]["capacity"]
        for more in ((), ("--fail", "node1.nic0"), ("--degrade", "node1.nic=25"))
    ]
    assert found == [200, 150, 100]
    assert hccc(*given, "--fail", "node9.gpu0")[0] == 1


def test_unequal_nodes_and_an_allreduce(hccc: Hccc) -> None:
    out = hccc("bound", "heteccl-h20-4+8", "--collective", "allreduce")[1]
    assert "as sizes grow  algbw 200.00 GB/s" in out and "over trees     algbw 200.00 GB/s" in out
    assert "reduced to some root" in out


def test_paths_may_be_slower_than_every_cut(hccc: Hccc, tmp_path: Path) -> None:
    """Two GPUs, each linked to three others (`test_best_paths`)."""
    pairs = [(u, v) for u in (0, 1) for v in (2, 3, 4)]
    both = ", ".join(f"(({u},{v}) -> 10), (({v},{u}) -> 10)" for u, v in pairs)
    site = tmp_path / "site.cluster"
    site.write_text(f"define node1 = 5\ndefine bandwidth = {{direct => [{both}]}}\n")
    out = hccc("bound", site, "--collective", "alltoall")[1]
    assert "over paths     algbw 21.43 GB/s, 85.7 % of that, at most" in out
    assert "limited by     links" in out and "as sizes grow  algbw 25.00 GB/s" in out
    assert "over paths (links)" in hccc("bound", site)[1]


def test_thread_blocks_limit_where_they_are_few(hccc: Hccc) -> None:
    """8 blocks of 41 GB/s copy less than NVLink carries; 16 copy more."""
    given = ("bound", "dgx-h100", "--collective", "alltoall", "-b", "1G", "--json", "--max-sms")
    few, more = (json.loads(hccc(*given, count)[1])["bounds"][0] for count in (8, 16))
    assert (few["limited_by"], more["limited_by"]) == ("thread blocks", "ports")
    assert few["time"] == more["time"] < few["thread_blocks"]["time"]
    assert few["thread_blocks"]["time"] == pytest.approx(2 * more["thread_blocks"]["time"])
    said = hccc(*given[:4], "-b", "1G", "--max-sms", 8)[1]
    assert "limited by     thread blocks" in said and "µs: 8 a rank" in said
    assert "8 thread blocks a rank: " in hccc("bound", "dgx-h100", "-b", "1G", "--max-sms", 8)[1]


def test_all_eight_as_a_table(hccc: Hccc) -> None:
    code, out, _ = hccc("bound", "heteccl-h20-4x2+8")
    rows = [line.split()[0].lower() for line in out.splitlines()[4:]]
    assert code == 0 and sorted(rows) == sorted(EIGHT)
    assert max(map(len, out.splitlines())) <= 120


def test_as_json(hccc: Hccc) -> None:
    code, out, _ = hccc("bound", "syccl-a100-32", "--json", "--root", 5)
    found = {one["collective"].lower(): one for one in json.loads(out)["bounds"]}
    assert code == 0 and set(found) == set(EIGHT)
    assert found["allgather"]["cut"]["algbw_exact"] == "400/3"
    assert found["reduce"]["root"] == 5 and "root" not in found["alltoall"]
    assert found["allreduce"]["rooted_trees"]["algbw"] == pytest.approx(200 / 3)
    assert found["alltoall"]["paths"]["algbw"] == pytest.approx(50 / 3)
    assert {one["limited_by"] for one in found.values()} == {"NICs"}
    for one in found.values():
        cut = one["cut"]
        assert one["time"] == pytest.approx(max(one["latency"], one["head"] + one["bandwidth"]))
        assert one["bandwidth"] == pytest.approx(
            one["size"] * cut["share"] / cut["capacity"] / 1000
        )


def test_of_a_cluster_of_ones_own(hccc: Hccc, tmp_path: Path) -> None:
    """One GPU has nothing to move; an imported cluster can be bounded."""
    site = tmp_path / "site.cluster"
    site.write_text("define node1 = 1\n")
    code, out, _ = hccc("bound", site, "--collective", "alltoall")
    assert code == 0 and "0.00 µs" in out and "bandwidth" not in out
    assert library.bound(str(site), "alltoall", 1 << 20).found[0].bound.cut is None


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--root", "99"], 2, "E410"),
        (["--collective", "allgatherr"], 2, "allgatherr"),
        (["-b", "-1"], 2, "-1"),
    ],
)
def test_refusals(hccc: Hccc, options: list[str], code: int, said: str) -> None:
    found, out, err = hccc("bound", "dgx-h100", *options)
    assert (found, out) == (code, "") and said in err


@pytest.mark.slow
def test_512_gpus() -> None:
    done = process("bound", "syccl-h800-512")
    assert done.returncode == 0 and "230.45" in done.stdout
