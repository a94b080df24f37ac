"""Clusters whose nodes are alike, and random sketches of them."""

from __future__ import annotations

from hypothesis import strategies as st

from hccc.ir.sketch import Sketch, Stage, SubDemand
from hccc.ir.topology import Topology
from hccc.network.dimensions import dimensions
from hccc.testing.clusters import cluster


def rails(nodes: int, gpus: int, per_rail: int = 1) -> Topology:
    """Returns nodes on rails, of which each has so many GPUs of a node."""
    runs = [list(range(i, i + per_rail)) for i in range(0, gpus, per_rail)]
    nics = ", ".join(f"(({','.join(map(str, run))}) -> 50)" for run in runs)
    rail = ", ".join(f"({i})" for i in range(len(runs)))
    return cluster(f"{_nodes(nodes, gpus)}define nic = [{nics}]\ndefine rail = [{rail}]\n")


def clos(leaves: int, below: int, gpus: int, nics: int = 1) -> Topology:
    """Returns leaves over so many nodes each, below one spine, or one switch of a single leaf."""
    each = gpus // nics
    shared = [",".join(str(k * each + i) for i in range(each)) for k in range(nics)]
    text = _nodes(leaves * below, gpus)
    text += f"define nic = [{', '.join(f'(({one}) -> 25)' for one in shared)}]\n"
    if leaves > 1:
        first = [k * below + 1 for k in range(leaves)]
        each_leaf = [f"((node{k}..node{k + below - 1}) -> 40)" for k in first]
        text += f"define leaf = [{', '.join(each_leaf)}]\n"
    return cluster(text)


def _nodes(count: int, gpus: int) -> str:
    ports = f"define bandwidth = {{port => [((0..{gpus - 1}) -> 180)]}}\n" if gpus > 1 else ""
    return f"define node1 = {count} * {gpus}\n{ports}"


def alike() -> st.SearchStrategy[Topology]:
    """Draws clusters of alike nodes that at least two dimensions join."""
    small = st.integers(2, 4)
    on_rails = st.builds(rails, small, st.just(4), st.sampled_from([1, 2]))
    below = st.builds(
        clos, st.integers(1, 3), st.integers(2, 3), st.just(4), st.sampled_from([1, 2])
    )
    return on_rails | below


@st.composite
def sketches_of(draw: st.DrawFn, t: Topology) -> Sketch:
    """Draws any sketch of `t`: in each stage some groups, some sources, some targets."""
    groups = [d for d in dimensions(t)]
    have = {draw(st.integers(0, len(t) - 1))}
    stages = list[Stage]()
    while len(have) < len(t):
        stage, reached = list[SubDemand](), set[int]()
        for d in groups:
            for g in range(len(d.sizes)):
                inside = d.members(g).tolist()
                sources = [rank for rank in inside if rank in have]
                left = [rank for rank in inside if rank not in have | reached]
                if sources and left and draw(st.sampled_from([False, True])):
                    few = sources if not stages else draw(_some(sources))
                    targets = draw(_some(left))
                    reached |= set(targets)
                    stage.append(SubDemand(d.name, g, tuple(few), tuple(targets)))
        have |= reached
        if stage:
            stages.append(tuple(stage))
    return Sketch(tuple(stages))


def _some(of: list[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(of), min_size=1, unique=True).map(sorted)
