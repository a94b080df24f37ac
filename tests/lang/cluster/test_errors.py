"""Every mistake in a cluster file is one clear error, at its place, soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Problem, UserError
from hccc.lang.cluster.load import load
from hccc.testing.clusters import cluster, texts
from tests.marks import slow

NODE = "define node1 = 4\ndefine bandwidth = {mesh => [((0..3) -> (10,1))]}\n"
NICS = NODE.replace("= 4", "= 2 * 4") + "define nic = [((0..3) -> (5,1))]\n"
# name: (text, code:line:column, part of the message)
WRONG = {
    "empty": ("", "E403:-", "is empty"),
    "comment only": ("# nothing\n", "E034:-", "no node is defined"),
    "no define": ("node1 = 4", "E030:1:1", "list of `define`s"),
    "second without define": (NODE + "nic = 4", "E030:3:1", "begins with `define`"),
    "an x for a product": ("define node1 = 2 x 4", "E030:1:18", "expected `*`, found `x`"),
    "a number for NICs": (NODE + "define nic = 2", "E035:3:14", "expected a list `[...]`, not 2"),
    "nothing defined": ("define node1 =", "E030:1:14", "the end of the file"),
    "stray": ("define node1 = 4;", "E031:1:17", "`;` is not in"),
    "negative": ("define node1 = -4", "E031:1:16", "`-` is not in"),
    "unknown unit": (
        NODE + "define nic = [((0..3) -> (400 Gb,1))]",
        "E138:3:27",
        "`Gb` is no unit of bandwidth",
    ),
    "a time for a rate": (NODE + "define nic = [((0..3) -> (5us,1))]", "E138:3:27", "`us` is no"),
    "a rate for a time": (NODE + "define latency = {mesh => 5GB/s}", "E138:3:27", "no unit of"),
    "unit of a count": ("define node1 = 4GB", "E035:1:16", "whole number"),
    "unknown unit without a space": (
        NODE + "define nic = [((0..3) -> (400Gbs,1))]",
        "E031:3:27",
        "`400Gbs` is neither",
    ),
    "number and letters": ("define node1 = 4x", "E031:1:16", "`4x` is neither"),
    "open string": ('define node1 = 4\ndefine device = {name => "A}', "E031:2:26", "on its line"),
    "never closed": ("define node1 = (4", "E032:1:16", "never closed"),
    "figure as printed": (
        "define node1 = 4\ndefine bandwidth = {switch => [( (0,1), (2,3) >-> (16,1) ), "
        "direct => [((0,1) -> (25,2))]}",
        "E030:2:68",
        "expected",
    ),
    "closed by another": ("define node1 = (4]", "E032:1:18", "another kind"),
    "closes nothing": ("define node1 = 4)", "E032:1:17", "closes nothing"),
    "next define inside": ("define node1 = (4\ndefine node2 = 4", "E032:1:16", "never closed"),
    "unknown": (NODE + "define bandwith = {}", "E033:3:8", "cannot be defined"),
    "unknown key": (NODE + "define latency = {mash => 1}", "E138:3:19", "no `mash`"),
    "attribute before node": ("define bandwidth = {}", "E034:1:8", "belongs to a node"),
    "wrong shape": ("define node1 = 4\ndefine bandwidth = 3", "E035:2:20", "not 3"),
    "wrong node name": ("define node2 = 4", "E134:1:8", "the next node is node1"),
    "node as other name": ("define nodes = 4", "E134:1:8", "the next node is node1"),
    "nodenum": ("define nodenum = 2\n" + NODE, "E136:1:18", "1 node is defined"),
    "memory twice": (
        NICS + "define memory = [(node1, node2)]\ndefine memory = []",
        "E134:5:8",
        "twice",
    ),
    "memory of a node that is not there": (
        NICS + "define memory = [(node1, node3)]",
        "E138:4:26",
        "there is no node3",
    ),
    "memory of a node in two domains": (
        NICS + "define memory = [(node1, node2), (node2)]",
        "E134:4:35",
        "another memory domain",
    ),
    "memory of two vendors": (
        "define device = H100\ndefine node1 = 8\ndefine node2 = 8\ndefine device = MI300X\n"
        "define memory = [(node1, node2)]",
        "E139:5:18",
        "node1 (nvidia) and node2 (amd) share no memory",
    ),
    "memory of two vendors behind a node of any": (
        "define node1 = 8\ndefine node2 = 8\ndefine device = H100\n"
        "define node3 = 8\ndefine device = MI300X\ndefine memory = [(node1..node3)]",
        "E139:6:19",
        "node2 (nvidia) and node3 (amd) share no memory",
    ),
    "a GPU in two vendor clusters": (
        NICS + "define cluster = [(node1), (node1, 0)]",
        "E134:4:28",
        "in a vendor cluster already",
    ),
    "a border rank twice": (
        NICS + "define border = [(node1, 0), (node1)]",
        "E134:4:31",
        "a border rank already",
    ),
    "a border rank that is not there": (
        NICS + "define border = [(node1, 99)]",
        "E132:4:26",
        "GPU 99",
    ),
    "vendor clusters twice": (
        NICS + "define cluster = [(node1)]\ndefine cluster = [(node2)]",
        "E134:5:8",
        "defined twice",
    ),
    "memory of no nodes": (NICS + "define memory = [(0, 1)]", "E138:4:19", "no node"),
    "memory without a list": (NICS + "define memory = (node1, node2)", "E035:4:17", "list"),
    "nodenum twice": ("define nodenum = 1\ndefine nodenum = 1", "E134:2:8", "twice"),
    "no gpus": ("define node1 = 0", "E132:1:16", "not 1 to"),
    "half a gpu": ("define node1 = 1.5", "E035:1:16", "whole number"),
    "too many gpus": ("define node1 = 131072\ndefine node2 = 1", "E137:2:16", "131,072 GPUs"),
    "too many nodes": ("define node1 = 99999999999 * 8", "E132:1:16", "number of nodes"),
    "no cores": (NODE + "define cores = 0", "E132:3:16", "number of cores is 0"),
    "launch by a name": (NODE + "define launch = soon", "E035:3:17", "launch"),
    "unknown part of a launch": (NODE + "define launch = {entri => 1}", "E138:3:18", "no `entri`"),
    "launch of a year": (NODE + "define launch = 1e13", "E132:3:17", "more than 1,000,000"),
    "small launch in µs": (NODE + "define launch = {small => 4us}", "E138:3:27", "unit of size"),
    "more than a copy": (NODE + "define device = {read => 1.5}", "E132:3:26", "not a part of 1"),
    "cache of one size": (NODE + "define device = {cache => 1 MiB}", "E035:3:27", "a list"),
    "cache of no size": (NODE + "define device = {cache => []}", "E132:3:27", "0 sizes"),
    "cache without rates": (NODE + "define device = {cache => [1 MiB]}", "E035:3:28", "MiB ->"),
    "cache of zero": (NODE + "define device = {cache => [(1 MiB -> 0)]}", "E133:3:38", "is zero"),
    "cache of three rates": (
        NODE + "define device = {cache => [(1 MiB -> (1, 2, 3))]}",
        "E035:3:28",
        "one or two rates",
    ),
    "cache now of all, now of one": (
        NODE + "define device = {cache => [(1 -> (1, 2)), (2 -> 1)]}",
        "E035:3:43",
        "one or two",
    ),
    "cache out of order": (
        NODE + "define device = {cache => [(2 -> 9), (1 -> 10)]}",
        "E134:3:38",
        "ascending",
    ),
    "half a core": (NODE + "define cores = 1.5", "E035:3:16", "whole number"),
    "impossible id": (
        "define node1 = 2\ndefine bandwidth = {direct => [((0,2) -> (1,1))]}",
        "E132:2:36",
        "no GPU 2",
    ),
    "impossible range": (
        "define node1 = 2\ndefine bandwidth = {port => [((0..99999999) -> 1)]}",
        "E132:2:35",
        "no GPU 99999999",
    ),
    "backwards": ("define node1 = 2\ndefine nic = [((1..0) -> 1)]", "E132:2:17", "backwards"),
    "zero bandwidth": (
        "define node1 = 2\ndefine bandwidth = {direct => [((0,1) -> (0,1))]}",
        "E133:2:43",
        "bandwidth is zero",
    ),
    "zero links": (
        "define node1 = 2\ndefine bandwidth = {direct => [((0,1) -> (1,0))]}",
        "E132:2:45",
        "number of links",
    ),
    "endless bandwidth": (
        "define node1 = 2\ndefine bandwidth = {direct => [((0,1) -> 1e999)]}",
        "E132:2:42",
        "more than",
    ),
    "itself": (
        "define node1 = 2\ndefine bandwidth = {direct => [((1,1) -> 1)]}",
        "E134:2:42",
        "both sides",
    ),
    "on both sides": (
        "define node1 = 3\ndefine bandwidth = {switch => [((0,1),(1,2) >-> 1)]}",
        "E134:2:49",
        "GPU 1 is on both sides",
    ),
    "link twice": (
        "define node1 = 2\ndefine bandwidth = {direct => [(0,1) -> 1, (0,1) -> 1]}",
        "E134:2:53",
        "two of these",
    ),
    "two nics": (NODE + "define nic = [((0,1) -> 1), ((1) -> 1)]", "E134:3:37", "GPU 1 has"),
    "arrow for switch": (
        "define node1 = 2\ndefine bandwidth = {switch => [((0),(1) -> 1)]}",
        "E035:2:32",
        "`->` cannot stand here",
    ),
    "no arrow": (NODE + "define nic = [(0,1)]", "E035:3:15", "expected"),
    "unreachable gpu": (
        "define node1 = 3\ndefine bandwidth = {mesh => [((0,1) -> 1)]}",
        "E135:1:8",
        "GPU 2 of node1 cannot be reached",
    ),
    "one way only": (
        "define node1 = 2\ndefine bandwidth = {direct => [(0,1) -> 1]}",
        "E135:1:8",
        "GPU 1 of node1 cannot reach",
    ),
    "unreachable node": (
        NODE + NODE.replace("node1", "node2"),
        "E135:3:8",
        "node2 cannot be reached from node1",
    ),
    "unreachable leaf": (
        NICS + "define leaf = [(node1), (node2)]",
        "E135:1:8",
        "node2 cannot be reached from node1",
    ),
    "no NIC is left": (
        NICS + "define failed = [(node2, nic)]",
        "E135:1:8",
        "node2 cannot be reached from node1",
    ),
    "NICs that fail twice": (
        NICS + "define failed = [(node1, nic, 0), (node1, nic)]",
        "E134:4:35",
        "NIC 0 of node1",
    ),
    "no such NIC": (NICS + "define failed = [(node1, nic, 7)]", "E132:4:31", "no NIC 7"),
    "node without NICs": (NODE + "define failed = [(node1, nic)]", "E132:3:18", "has no nic"),
    "nic below no leaf": (NICS + "define leaf = [(node1)]", "E135:1:8", "below no leaf"),
    "nic below two leaves": (NICS + "define leaf = [(node1), (node1, node2)]", "E134:4:25", "alr"),
    "unknown node": (NICS + "define leaf = [(node3)]", "E138:4:17", "there are 2"),
    "unknown leaf": (NICS + "define spine = [(leaf1)]", "E138:4:18", "no leaf is defined"),
    "unknown nic": (NICS + "define rail = [(1)]", "E132:4:17", "no NIC 1"),
    "internode of one": (NICS + "define internode = (node1)", "E035:4:20", "two nodes"),
    "interbandwidth alone": (NICS + "define interbandwidth = {}", "E034:4:8", "internode"),
    "failed twice": (NICS + "define failed = [(node1, 0), (node1, 0)]", "E134:4:30", "twice"),
    "failed nobody": (NICS + "define failed = [(node1, 4)]", "E132:4:26", "no GPU 4"),
    "all failed": (NODE + "define failed = [(node1, 0..3)]", "E135:3:18", "every GPU failed"),
    "degraded what": (NICS + "define degraded = [(node1) -> 1]", "E035:4:20", "what is degraded"),
    "degraded no link": (
        NICS.replace("mesh", "port") + "define degraded = [(node1, direct, 0, 1) -> 1]",
        "E132:4:20",
        "no link from GPU 0",
    ),
    "degraded itself": (NICS + "define degraded = [(node1, node1) -> 1]", "E035:4:20", "two nodes"),
    "degraded three nodes": (
        NICS + "define degraded = [(node1, node2, node1) -> 1]",
        "E035:4:20",
        "two nodes",
    ),
    "degraded no node": (
        NICS + "define degraded = [(node1, node3) -> 1]",
        "E138:4:28",
        "there is no node3",
    ),
    "degraded no port": (NICS + "define degraded = [(node1, port, 1) -> 1]", "E132:4:20", "no po"),
    "unit": (NODE + "define chunk = 3 parsecs", "E138:3:16", "no unit"),
    "size": (NODE + "define chunk = 0.3 KiB", "E132:3:16", "whole number of bytes"),
    "name": (NODE + 'define device = {vendor => "$(rm)"}', "E036:3:28", "cannot be"),
    "digits": ("define node1 = " + "1" * 99, "E036:1:16", "too many digits"),
    "nesting": ("define node1 = " + "(" * 99, "E037:1:48", "nest"),
    "nul": ("define node1 = 4\0", "E031:1:17", "U+0000"),
}


def problem(text: str) -> Problem:
    with pytest.raises(UserError) as caught:
        cluster(text)
    return caught.value.problem


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cluster(name: str) -> None:
    text, place, message = WRONG[name]
    found = problem(text)
    at = f"{found.span.line}:{found.span.column}" if found.span else "-"
    assert f"{found.code}:{at}" == place, found.render()
    assert message in found.message
    assert len(found.render().splitlines()) < 8


EVERY = "(0..65535)"
LARGE = {
    "words": "define node1 = 2\ndefine nic = [" + "(0) -> 1, " * 100_000 + "]",
    "meshes": "define node1 = 65536\n"
    f"define bandwidth = {{mesh => [{f'({EVERY} -> 1), ' * 9000}]}}",
    "nics": f"define node1 = 65536\ndefine nic = [{f'({EVERY} -> 1), ' * 9000}]",
    "ids": f"define node1 = 65536\ndefine nic = [(({'0..65535, ' * 50_000}) -> 1)]",
    "failures": "define node1 = 65536\ndefine nic = [((0) -> 1)]\n"
    f"define failed = [{'(node1, 0..65535), ' * 20_000}]",
    "internodes": "define node1 = 65536 * 1\n" + "define internode = (node1..node65536)\n" * 9000,
    "pairs": "define node1 = 3000 * 1\ndefine internode = (node1..node3000)\n"
    "define interbandwidth = {switch => [((0),(0) >-> 1)]}",
    "leaves": "define node1 = 60000 * 1\ndefine nic = [((0) -> 1)]\ndefine leaf = ["
    + "(node1..node60000), " * 9000
    + "]",
}


@pytest.mark.parametrize("name", [n if n == "leaves" else slow(n) for n in LARGE])
def test_large_input_is_refused_soon(name: str) -> None:
    begin = time.perf_counter()
    assert problem(LARGE[name]).code in ("E037", "E134", "E137")
    assert time.perf_counter() - begin < 120


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(texts(), st.data())
def test_damaged_text_is_refused_or_read(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(at, min(len(text), at + 12)))
        new = data.draw(
            st.sampled_from(["", "(", ")", "]", "}", "0", "9", ",", "->", "node1", "*"])
        )
        text = text[:at] + new + text[end:]
    try:
        cluster(text)
    except UserError as error:
        assert error.problem.code[:3] in ("E03", "E13", "E40")
        span = error.problem.span
        assert span is None or 1 <= span.line <= text.count("\n") + 2


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "a", tmp_path / "b"
    binary.write_bytes(b"\xff\xfe")
    with large.open("wb") as file:
        file.truncate((8 << 20) + 1)
    for path, code in (
        (tmp_path / "no", "E401"),
        (tmp_path, "E401"),
        (binary, "E402"),
        (large, "E404"),
        (Path("nul\0"), "E401"),
    ):
        with pytest.raises(UserError) as caught:
            load(path)
        assert caught.value.problem.code == code
