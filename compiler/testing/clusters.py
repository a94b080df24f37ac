"""clusters: random clusters, as text and as Topologies.

Nodes are joined inside by a mesh, crossbar or switch groups; NICs hang below leaves and spines,
or resources join the nodes; some GPUs failed, some links are degraded.
"""

from __future__ import annotations

from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.ir.device import BLOCK_RATES
from hccc.ir.topology import Topology
from hccc.lang.cluster.load import parse

APART = "E135"
SPEED = st.tuples(st.floats(0.001, 1e5), st.integers(1, 9), st.none() | st.floats(0, 1e3)).map(
    lambda r: f"({', '.join(str(x) for x in r if x is not None)})"
)


def _ids(gpus: list[int]) -> str:
    return f"({', '.join(map(str, gpus))})"


@st.composite
def _inside(draw: st.DrawFn, size: int) -> str:
    """Draws a `define bandwidth` that joins all GPUs of a node."""
    everyone = _ids(list(range(size)))
    speed = [draw(SPEED) for _ in range(4)]
    links = [f"port => [({everyone} -> {speed[0]})]"]
    if size > 1:
        cut = draw(st.integers(1, size - 1))
        sides = _ids(list(range(cut))), _ids(list(range(cut, size)))
        links = [
            *links,
            f"mesh => [({everyone} -> {speed[1]})]",
            f"switch => [({sides[0]}, {sides[1]} >-> {speed[2]}), "
            f"({sides[1]}, {sides[0]} >-> {speed[3]})]",
        ]
    chosen = draw(st.lists(st.sampled_from(links), min_size=1, unique=True))
    if size > 1 and draw(st.booleans()):
        u, v = draw(st.permutations(range(size)))[:2]
        chosen.append(f"direct => [(({u},{v}) -> {draw(SPEED)})]")
    return f"define bandwidth = {{{', '.join(chosen)}}}"


@st.composite
def _nics(draw: st.DrawFn, size: int) -> tuple[int, str]:
    """Draws the number of NICs, and the line: runs of GPUs that share one."""
    cuts = sorted(draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
    runs = [list(range(a, b)) for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    return len(runs), f"define nic = [{', '.join(f'({_ids(r)} -> {draw(SPEED)})' for r in runs)}]"


def _launches() -> st.SearchStrategy[str]:
    """Draws a time, or some of the three times, and a size."""
    us = st.floats(0, 1e4).map(str)
    size = st.integers(1, 1 << 22).map(str)
    small = st.fixed_dictionaries({}, optional={"small": size})
    some = (
        st.tuples(st.dictionaries(st.sampled_from(["base", "entry", "wake"]), us), small)
        .map(lambda both: both[0] | both[1])
        .map(lambda given: f"{{{', '.join(f'{key} => {value}' for key, value in given.items())}}}")
    )
    return us | some


@st.composite
def _devices(draw: st.DrawFn) -> str:
    """Draws a device of the library, one with other figures, or one by hand."""
    rates = st.dictionaries(st.sampled_from(BLOCK_RATES), st.floats(1, 1e3))
    given = "".join(f", {key} => {value}" for key, value in draw(rates).items())
    if draw(st.booleans()):
        given += f", read => {draw(st.floats(0.1, 0.9))}, cache => [{draw(_caches())}]"
    known = draw(st.sampled_from(["A100", "H100", "MI300X"]))
    vendor = draw(st.sampled_from(["nvidia", "amd"]))
    own = f"{{vendor => {vendor}, reduce => {draw(st.floats(1, 1e4))}{given}}}"
    return draw(st.sampled_from([own, known, f"{{name => {known}{given}}}"]))


@st.composite
def _caches(draw: st.DrawFn) -> str:
    """Draws the rates of memory for some sizes, of a thread block and perhaps of all."""
    sizes = draw(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=3, unique=True))
    rate, two = st.floats(1, 1e3), draw(st.booleans())
    rates = [f"({draw(rate)}, {draw(rate)})" if two else draw(rate) for _ in sizes]
    return ", ".join(f"({s} -> {r})" for s, r in zip(sorted(sizes), rates, strict=True))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draws the text of one cluster, of at most 20 GPUs."""
    lines, fewest = [f"define chunk = {draw(st.integers(1, 1 << 30))}"], 9
    sizes: list[int] = []
    network = draw(st.booleans())
    amd: list[bool] = []  # of each node
    for _ in range(draw(st.integers(1, 3))):
        count, size = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        lines.append(f"define node{len(sizes) + 1} = {count} * {size}")
        lines.append(f"define device = {(device := draw(_devices()))}")
        amd += ["amd" in device or "MI300X" in device.split(",")[0]] * count
        if draw(st.booleans()):
            lines.append(f"define cores = {draw(st.integers(1, 300))}")
        if draw(st.booleans()):
            lines.append(f"define launch = {draw(_launches())}")
        sizes += [size] * count
        lines.append(draw(_inside(size)))
        if network:
            nics, line = draw(_nics(size))
            fewest = min(fewest, nics)
            lines.append(line)
    if network:
        lines += draw(_tiers(len(sizes), fewest))
    else:
        for a, b in zip(range(len(sizes)), range(1, len(sizes)), strict=False):
            sides = _ids(list(range(sizes[a]))), _ids(list(range(sizes[b])))
            lines.append(f"define internode = (node{a + 1}, node{b + 1})")
            way = f"(({sides[0]}, {sides[1]} >-> {draw(SPEED)}))"
            direct = f", direct => [((0,0) -> {draw(SPEED)})]" if draw(st.booleans()) else ""
            lines.append(f"define interbandwidth = {{switch => [{way}]{direct}}}")
        if len(sizes) > 2 and draw(st.booleans()):
            lines += draw(_every_pair(sizes))
    if len(sizes) > 1 and draw(st.booleans()):
        cut = draw(st.integers(1, len(sizes) - 1))
        if len({*amd[:cut]}) == len({*amd[cut:]}) == 1:  # of one vendor: others share no memory
            lines.append(f"define memory = [(node1..node{cut}), (node{cut + 1}..node{len(sizes)})]")
    node = draw(st.integers(0, len(sizes) - 1))
    if draw(st.booleans()) and sizes[node] > 1:
        lines.append(f"define failed = [(node{node + 1}, {draw(st.integers(0, sizes[node] - 1))})]")
    if network and draw(st.booleans()):
        lines.append(f"define degraded = [((node{node + 1}, nic, 0) -> {draw(SPEED)})]")
    if len(sizes) > 1 and draw(st.booleans()):
        x, y = draw(st.permutations(range(1, len(sizes) + 1)))[:2]
        lines.append(f"define degraded = [((node{x}, node{y}) -> {draw(SPEED)})]")
    return "\n".join(lines)


@st.composite
def _every_pair(draw: st.DrawFn, sizes: list[int]) -> list[str]:
    """Draws resources between every two of some nodes, in any order."""
    nodes = draw(st.permutations(range(len(sizes))))[: draw(st.integers(2, len(sizes)))]
    least = [min(sizes[node] for node in part) for part in (nodes[:-1], nodes[1:])]
    links = [
        f"({', '.join(_ids(sorted(draw(_some(size)))) for size in least)} >-> {draw(SPEED)})"
        for _ in range(draw(st.integers(1, 2)))
    ]
    named = ", ".join(f"node{node + 1}" for node in nodes)
    return [
        f"define internode = ({named})",
        f"define interbandwidth = {{switch => [{', '.join(links)}]}}",
    ]


def _some(size: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, size - 1), min_size=1)


@st.composite
def _tiers(draw: st.DrawFn, n_nodes: int, fewest: int) -> list[str]:
    """Draws leaves of nodes with uplinks, and spines over the leaves; or nothing."""
    if fewest == 9 or not draw(st.booleans()):
        return []
    cut = draw(st.integers(1, n_nodes))
    parts = [range(cut)] + ([range(cut, n_nodes)] if cut < n_nodes else [])
    names = [", ".join(f"node{i + 1}" for i in part) for part in parts]
    lines = [f"define leaf = [{', '.join(f'(({n}) -> {draw(SPEED)})' for n in names)}]"]
    if draw(st.booleans()):
        spines = [f"((leaf{i + 1}) -> {draw(SPEED)})" for i in range(len(parts))]
        lines.append(f"define spine = [{', '.join(spines)}]")
    return lines


def cluster(text: str) -> Topology:
    """Parses a text to its Topology."""
    return parse(Source("test.cluster", text))


def topologies() -> st.SearchStrategy[Topology]:
    """Draws Topologies of at most 20 GPUs: unequal nodes, shared NICs, tiers, failures, slow links.

    A text whose GPUs cannot reach each other (the way led over a failed one) has no Topology.
    """
    return texts().map(_joined).filter(lambda t: t is not None)  # type: ignore[return-value]


def _joined(text: str) -> Topology | None:
    try:
        return cluster(text)
    except UserError as error:
        if error.problem.code != APART:
            raise
        return None
