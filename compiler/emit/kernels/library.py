"""library: what surrounds the kernels in an output directory: C header, dispatch, build file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from hccc import __version__
from hccc.emit.kernels import wrap
from hccc.emit.kernels.view import checked_name, describe, safe_comment
from hccc.emit.targets import Target
from hccc.ir.collective import Collective, OpType
from hccc.ir.kernel_shape import kernel_shape
from hccc.ir.plan import Plan

# Every dtype of types.h, and the one of the same width that stands for it where data only moves.
STAND_IN = {
    "int8": "uint8", "uint8": "uint8", "float16": "float16", "bfloat16": "float16",
    "int32": "uint32", "uint32": "uint32", "float32": "uint32",
    "int64": "uint64", "uint64": "uint64", "float64": "uint64",
}  # fmt: skip
OPS = ("sum", "prod", "min", "max", "avg")
SAYS = {
    OpType.ALLGATHER: "Every rank gets the blocks of all, rank by rank",
    OpType.ALLREDUCE: "Every rank gets the reduction of all blocks",
    OpType.REDUCESCATTER: "Rank r gets the reduction of block r of all",
    OpType.BROADCAST: "Every rank gets the root's block",
    OpType.REDUCE: "The root gets the reduction of all blocks",
    OpType.GATHER: "The root gets the blocks of all, rank by rank",
    OpType.SCATTER: "Rank r gets block r of the root",
    OpType.ALLTOALL: "Rank r gets block r of every rank, rank by rank",
    OpType.CUSTOM: "What its source says",
    OpType.SENDRECV: "Rank r gets the block of rank r - 1",
}


@dataclass(frozen=True, slots=True)
class LibraryView:
    """What `header.jinja`, `dispatch.jinja` and `cmake.jinja` print.

    names: (dtype a caller gives, dtype that is built for it); dtypes, ops: what can be built.
    """

    name: str
    guard: str
    version: str
    source: str
    collective: str
    says: str
    reduces: bool
    shape: tuple[tuple[str, int], ...]
    input_blocks: str
    output_blocks: str
    names: tuple[tuple[str, str], ...]
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    entries: tuple[Entries, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """One target's entries. by_name, by_type: lines of their declarations, without `;`."""

    target: Target
    library: str
    by_name: tuple[str, ...]
    by_type: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DispatchView:
    """What `dispatch.jinja` prints: the library, and the target it is for."""

    library: LibraryView
    entries: Entries


def library(plan: Plan, targets: Sequence[Target]) -> LibraryView:
    """The view of one directory."""
    c, name = plan.collective, checked_name(plan)
    reduces = plan.reduces
    names = {d: d if reduces else s for d, s in STAND_IN.items()}
    ops = tuple(op for op in OPS if plan.averages or op != "avg") if reduces else OPS[:1]
    return LibraryView(
        name=name,
        guard=f"HCCC_GENERATED_{name}_H",  # as it is: names may differ in case alone
        version=__version__,
        source=safe_comment(plan.source),
        collective=describe(plan),
        says=SAYS[c.op],
        reduces=reduces,
        shape=tuple(asdict(kernel_shape(plan)).items()),
        input_blocks=_blocks(c, c.input_blocks),
        output_blocks=_blocks(c, c.output_blocks),
        names=tuple(names.items()),
        dtypes=tuple(dict.fromkeys(names.values())),
        ops=ops,
        entries=tuple(_entries(name, target, reduces, ops) for target in targets),
    )


def _entries(name: str, target: Target, reduces: bool, ops: Sequence[str]) -> Entries:
    stream = [wrap.Text(f"{target.stream} stream")] if target.stream else []
    common = [wrap.Text("const hccc_rank* ranks"), wrap.Text("const hccc_call* call")]
    fault = [wrap.Text("hccc_fault* fault"), *stream]
    named = [wrap.Text("const char* dtype"), wrap.Text("const char* op")]
    head = f"int {name}_{target.name}"
    by_type: list[str] = []
    for dtype in dict.fromkeys(STAND_IN if reduces else STAND_IN.values()):
        for op in ops:
            arguments = (*common, *fault)
            by_type += wrap.wrap(wrap.Text(f"{head}_{dtype}_{op}", arguments), 0, ";")
    by_name = wrap.wrap(wrap.Text(head, (*common, *named, *fault)), 0)
    library = f"{name}_{target.name}" if target.stream else name
    return Entries(target, library, tuple(by_name), tuple(by_type))


def _blocks(c: Collective, of: Callable[[int], int]) -> str:
    """C for a number of blocks that may only differ at the root."""
    other = next((r for r in range(c.n_ranks) if r != c.root), c.root)
    at_root, elsewhere = of(c.root), of(other)
    if not c.rooted or at_root == elsewhere:
        return str(elsewhere)
    return f"rank == {c.root} ? {at_root} : {elsewhere}"
