"""library_view: the parts of an output directory around the kernels: C header, dispatcher, build
file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hccc.base.dtypes import (
    ALL,
    DEFAULT_DTYPES,
    DEFAULT_MOVED,
    DEFAULT_OPS,
    KINDS,
    OPS,
    REDUCTIONS,
    STAND_IN,
    Dtype,
    Reduction,
    accumulated,
    named,
    reduces,
)
from hccc.base.reductions.parse import own as own_reduction
from hccc.base.version import __version__
from hccc.emit.kernels import wrap
from hccc.emit.kernels.view import (
    LONGEST_SOURCE,
    checked_name,
    describe,
    describe_work,
    safe_comment,
    user_blocks,
)
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.collective import OpType
from hccc.ir.digest import library_digest
from hccc.ir.kernel_shape import kernel_shape
from hccc.ir.plan import Plan

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
    """The values that `header.jinja`, `dispatch.jinja`, `cmake.jinja` and `readme.jinja` print.

    names: (dtype a caller gives, dtype that is built for it), dtype_lines: the former as C; ops:
    that can be built, of every_op; own_ops: those of one's own; default_dtypes, default_ops: that
    CMake builds; lacks: each reduction that some dtypes lack, with those. op: the
    collective's name; root: -1 where it has none; domain: of each rank, as lines of C, none where
    all share memory; modes: the values of "in place" that are served. plans, ranges: of a
    catalogue, which has no shape of its own; else none.
    """

    name: str
    guard: str
    version: str
    source: str
    collective: str
    says: str
    reduces: bool
    touches_peers: bool
    shape: tuple[tuple[str, int], ...]
    input_blocks: str
    output_blocks: str
    names: tuple[tuple[str, str], ...]
    dtype_lines: tuple[str, ...]
    ops: tuple[str, ...]
    own_ops: tuple[str, ...]
    every_op: tuple[str, ...]
    default_dtypes: tuple[str, ...]
    default_ops: tuple[str, ...]
    lacks: tuple[tuple[str, tuple[str, ...]], ...]
    types: tuple[Dtype, ...]
    reductions: tuple[Reduction, ...]
    kinds: Mapping[str, str]
    ranks: int
    auto: str
    entries: tuple[Entries, ...]
    op: str
    root: int
    digest: int
    domain: tuple[str, ...]
    modes: tuple[bool, ...]
    plans: tuple[PlanView, ...] = ()
    ranges: tuple[RangeView, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanView:
    """One plan of a catalogue."""

    name: str
    source: str
    shape: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RangeView:
    """One range of a catalogue. begin, end: bytes of a message, end None for the last of a kind;
    at: begin in bytes of a block; number: of the plan, from 0."""

    in_place: bool
    begin: int
    end: int | None
    at: int
    number: int
    plan: PlanView
    window: int
    grain: int


@dataclass(frozen=True, slots=True)
class Entries:
    """One target's entries. sources: the files of kernels; by_name, by_type: lines of the entries'
    declarations, without `;`."""

    target: Target
    library: str
    sources: tuple[str, ...]
    by_name: tuple[str, ...]
    by_type: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DispatchView:
    """The values that `dispatch.jinja` prints: the library, and the target it is for."""

    library: LibraryView
    entries: Entries


def library(catalogue: Catalogue, targets: Sequence[Target]) -> LibraryView:
    """Returns the view of one directory."""
    digest, first = library_digest(catalogue), catalogue.plans[0]
    if catalogue.alone:
        return _library(first, digest, targets, first)
    c, plans = catalogue.collective, tuple(_plan(plan) for plan in catalogue.plans)
    common = _library(replace(first, name=catalogue.name), digest, targets, catalogue.narrowest)
    blocks = c.most_blocks()
    ranges = tuple(
        RangeView(
            one.in_place,
            one.begin,
            catalogue.end(one),
            -(-one.begin // blocks),
            one.plan,
            plans[one.plan],
            one.window,
            one.grain,
        )
        for one in catalogue.ranges
    )
    source = ", ".join(dict.fromkeys(plan.source for plan in plans))[:LONGEST_SOURCE]
    entries = tuple(
        replace(one, sources=tuple(f"{plan.name}{one.target.suffix}" for plan in plans))
        for one in common.entries
    )
    return replace(
        common,
        collective=describe_work(c),
        source=source,
        shape=(),
        entries=entries,
        plans=plans,
        ranges=ranges,
        modes=catalogue.modes,
        touches_peers=any(plan.touches_peers() for plan in catalogue.plans),
    )


def _plan(plan: Plan) -> PlanView:
    shape = tuple(kernel_shape(plan).constants().items())
    return PlanView(checked_name(plan), safe_comment(plan.source), shape)


def _library(plan: Plan, digest: int, targets: Sequence[Target], narrowest: Plan) -> LibraryView:
    c, name = plan.collective, checked_name(plan)
    reducing, domain = plan.reduces, plan.memory_domain.tolist()
    names = {d: d if reducing else s for d, s in STAND_IN.items()}
    texts = narrowest.operations if reducing else OPS[:1]
    ops, own = tuple(map(named, texts)), tuple(map(named, plan.reductions))
    return LibraryView(
        name=name,
        guard=f"HCCC_GENERATED_{name}_H",  # as it is: names may differ in case alone
        version=__version__,
        source=safe_comment(plan.source),
        collective=describe(plan),
        says=SAYS[c.op] if c.demand is None else "What its demand says",
        reduces=reducing,
        touches_peers=plan.touches_peers(),
        shape=tuple(kernel_shape(plan).constants().items()),
        input_blocks=user_blocks(c, c.input_blocks),
        output_blocks=user_blocks(c, c.output_blocks),
        names=tuple(names.items()),
        dtype_lines=tuple(_names(names)),
        ops=ops,
        own_ops=own,
        every_op=(*OPS, *own),
        default_dtypes=DEFAULT_DTYPES if reducing else DEFAULT_MOVED,
        default_ops=(*DEFAULT_OPS, *own),
        lacks=tuple((named(op), without) for op in texts if (without := _without(op)))
        if reducing
        else (),
        types=tuple(
            replace(one, accumulate=accumulated(one.name, plan.accumulate.bits)) for one in ALL
        ),
        reductions=(*(r for r in REDUCTIONS if r.name in ops), *_own(plan)),
        kinds=KINDS,
        ranks=c.n_ranks,
        auto=_auto(targets),
        entries=tuple(_entries(name, target, reducing, texts) for target in targets),
        op=c.name,
        root=c.root if c.rooted else -1,
        digest=digest,
        domain=tuple(wrap.table(domain, 4)) if max(domain) else (),
        modes=plan.modes,
    )


def _without(op: str) -> tuple[str, ...]:
    """Returns the dtypes that have no such reduction."""
    return tuple(dtype.name for dtype in ALL if not reduces(dtype.name, op))


def _own(plan: Plan) -> Iterator[Reduction]:
    """Yields the reductions of one's own, as the directory's page shows them."""
    for made in map(own_reduction, plan.reductions):
        escaped = made.text.split(":", 1)[1].strip().replace("|", "\\|")
        yield Reduction(made.name, -1, f"`{escaped}`", made.kinds)


def _auto(targets: Sequence[Target]) -> str:
    """Describes the targets that CMake builds by default."""
    gpus = " and ".join(target.title for target in targets if target.stream)
    found = f"{gpus} where {'their compilers are' if ' ' in gpus else 'its compiler is'} found"
    cpu = any(not target.stream for target in targets)
    return ", and ".join((["the CPU"] if cpu else []) + ([found] if gpus else []))


def _names(names: Iterable[str]) -> list[str]:
    """Writes the names as C strings, four a line."""
    words = [f'"{name}",' for name in names]
    return [" ".join(words[k : k + 4]) for k in range(0, len(words), 4)]


def _entries(name: str, target: Target, reducing: bool, ops: Sequence[str]) -> Entries:
    stream = [wrap.CallText(f"{target.stream} stream")] if target.stream else []
    common = [wrap.CallText("const hccc_comm* comm"), wrap.CallText("const hccc_call* call")]
    words = [wrap.CallText("const char* dtype"), wrap.CallText("const char* op")]
    head = f"int {name}_{target.name}"
    by_type: list[str] = []
    for dtype in dict.fromkeys(STAND_IN if reducing else STAND_IN.values()):
        for op in (op for op in ops if reduces(dtype, op)):
            arguments = (*common, *stream)
            by_type += wrap.wrap(wrap.CallText(f"{head}_{dtype}_{named(op)}", arguments), 0, ";")
    by_name = wrap.wrap(wrap.CallText(head, (*common, *words, *stream)), 0)
    library = f"{name}_{target.name}" if target.stream else name
    return Entries(target, library, (f"{name}{target.suffix}",), tuple(by_name), tuple(by_type))
