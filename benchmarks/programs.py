"""Programs of any size from the examples, for the benchmarks."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def hierarchical_mesh(op: str, nodes: int, per_node: int, channels: int = 4) -> str:
    """Returns the text of `examples/hm_<op>.rccl` for `nodes` nodes of `per_node` GPUs."""
    text = (EXAMPLES / f"hm_{op}.rccl").read_text()
    changes = {
        "nRanks=32": f"nRanks={nodes * per_node}",
        "nChannels=4": f"nChannels={channels}",
        "GPUPerNode=8": f"GPUPerNode={per_node}",
        "NICPerNode=8": f"NICPerNode={per_node}",
        "nNodes = 4": f"nNodes = {nodes}",
        "nGpusperNode = 8": f"nGpusperNode = {per_node}",
    }
    return _replaced(text, changes)


def direct_alltoall(ranks: int) -> str:
    """Returns the text of `examples/direct_alltoall.rccl` for `ranks` ranks, a multiple of 8."""
    return _replaced(
        (EXAMPLES / "direct_alltoall.rccl").read_text(), {"nRanks=8": f"nRanks={ranks}"}
    )


def direct(op: str, ranks: int) -> str:
    """Returns the text of `examples/direct_<op>.rccl` for `ranks` ranks of a node."""
    text = (EXAMPLES / f"direct_{op}.rccl").read_text()
    keys = ("nRanks", "GPUPerNode", "NICPerNode")
    return _replaced(text, {f"{key}=8": f"{key}={ranks}" for key in keys})


def ring_allreduce(ranks: int) -> str:
    """Returns the text of `examples/ring_allreduce.rccl` for `ranks` ranks."""
    text = (EXAMPLES / "ring_allreduce.rccl").read_text()
    small = {f"{key}=8": f"{key}={ranks}" for key in ("GPUPerNode", "NICPerNode") if ranks < 8}
    return _replaced(text, {"nRanks=8": f"nRanks={ranks}", **small})


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        if old not in text:
            raise SystemExit(f"the example no longer says {old!r}")
        text = text.replace(old, new)
    return text
