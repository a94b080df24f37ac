"""`hccc cluster`: shipped clusters are listed, printed, and named in place of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hccc.lang.cluster import load
from hccc.shipped import find as shipped
from tests.cli.commandline import ROOT, Hccc

FILES = sorted((ROOT / "examples" / "clusters").glob("*.cluster"))


def test_every_cluster_is_listed(hccc: Hccc) -> None:
    code, out, err = hccc("cluster", "list")
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["name", "nodes", "ranks", "devices", "network", "description"]
    assert [row.split()[0] for row in rows] == sorted(path.stem for path in FILES)
    (topo4,) = (row for row in rows if row.startswith("resccl-topo4 "))
    assert topo4.split()[1:5] == ["4", "32", "32", "A100-80GB"]
    assert "crossbar; 4 NICs a node, 2 leaves" in topo4
    assert topo4.endswith("  ResCCL Topo4: 4 servers of 8 A100 (32 GPUs)")


def test_the_list_as_json_says_what_the_files_do(hccc: Hccc) -> None:
    code, out, _ = hccc("cluster", "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)["clusters"]}
    assert code == 0 and rows.keys() == {path.stem for path in FILES}
    for path in FILES:
        t, row = load.load(path), rows[path.stem]
        assert (row["nodes"], row["ranks"]) == (t.n_nodes, len(t))
        assert path.read_text().startswith(f"# {row['description']}")


def test_a_cluster_is_printed_as_it_is(hccc: Hccc) -> None:
    assert hccc("cluster", "show", "mi300x") == (
        0,
        (ROOT / "examples/clusters/mi300x.cluster").read_text(),
        "",
    )


def test_the_dimensions_of_a_cluster_are_printed(hccc: Hccc, tmp_path: Path) -> None:
    assert hccc("cluster", "dimensions", "syccl-a100-32") == (
        0,
        "node   4 groups of 8   300 GB/s, 3.4 µs    0–7; 8–15; 16–23; 24–31\n"
        "leaf   2 groups of 16  12.5 GB/s, 14 µs    0–15; 16–31\n"
        "spine  1 group of 32   12.5 GB/s, 14.5 µs  0–31\n",
        "",
    )
    code, out, _ = hccc("cluster", "dimensions", "heteccl-h20-4+8", "--json")
    node, leaf = json.loads(out)["dimensions"]
    assert (code, node["groups"]) == (0, [list(range(4)), list(range(4, 12))])
    assert not node["alike"] and leaf["rate"] == [0, 25]
    alone = tmp_path / "alone.cluster"
    alone.write_text("define node1 = 1\n")
    assert hccc("cluster", "dimensions", str(alone)) == (0, "no level joins two ranks\n", "")


def test_an_unknown_name_is_one_error(hccc: Hccc) -> None:
    code, out, err = hccc("cluster", "show", "mi300")
    assert (code, out) == (1, "") and "help: did you mean mi300x?" in err
    code, out, err = hccc("sim", "ring_allreduce", "--cluster", "nowhere")
    assert (code, out) == (1, "") and f"help: {shipped.LIST_CLUSTERS}" in err


@pytest.mark.slow
def test_names_are_taken_where_files_are(
    hccc: Hccc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = ROOT / "examples"
    call = ("-b", "1M", "-e", "1M")
    files = ("examples/ring_allreduce.rccl", "examples/clusters/dgx-h100.cluster")
    monkeypatch.chdir(ROOT)
    by_path = hccc("sim", files[0], "--cluster", files[1], *call)[1].replace(
        files[1], "dgx-h100.cluster"
    )
    monkeypatch.chdir(tmp_path)
    assert hccc("sim", "ring_allreduce", "--cluster", "dgx-h100", *call) == (0, by_path, "")
    plans = [hccc(name, "--emit=plan") for name in ("sendrecv", examples / "sendrecv.rccl")]
    assert plans[0] == plans[1] and plans[0][0] == 0
    assert hccc("check", "broadcast_binomial_n8")[0] == 0
    assert hccc("show", "mi300x", "-o", "site.svg")[0] == 0
    assert "<svg" in (tmp_path / "site.svg").read_text()


TWO = """<system version="1"><cpu numaid="0">
<pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
<pci busid="0002:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
</cpu></system>"""


def test_import_writes_a_cluster_that_loads(hccc: Hccc, tmp_path: Path) -> None:
    topo, site = tmp_path / "topo.xml", tmp_path / "site.cluster"
    topo.write_text(TWO)
    given = ("cluster", "import", topo, "--nodes", 4, "--network", "IB")
    code, out, err = hccc(*given, "-o", site)
    assert (code, out, err) == (0, f"4 nodes, 8 GPUs → {site}\n", "")
    t = load.load(site)
    assert (t.n_nodes, len(t), t.devices[0].name, t.networks[0].name) == (
        4,
        8,
        "H100",
        "InfiniBand",
    )
    assert hccc(*given) == (0, site.read_text(), "")
    (told,) = {str(m): m for m in json.loads(hccc(*given, "--json")[1])["machines"]}.values()
    assert told["device"] == "H100" and any("links" in said for said in told["assumed"])


def test_import_refuses_and_writes_nothing(hccc: Hccc, tmp_path: Path) -> None:
    topo, site = tmp_path / "topo.xml", tmp_path / "site.cluster"
    topo.write_text("<graphs/>")
    code, out, err = hccc("cluster", "import", topo, "-o", site)
    assert (code, out) == (1, "") and "error[E540]" in err and "NCCL_TOPO_DUMP_FILE" in err
    assert not site.exists()
    code, _, err = hccc("cluster", "import", tmp_path / "none.xml")
    assert code == 1 and "error[E401]" in err
