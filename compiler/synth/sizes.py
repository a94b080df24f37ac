"""synthesis_sizes: the best Programs of a collective on a cluster, each for sizes of its own.

Candidates are searched once. For each size those of least estimate are wanted; what is wanted at
any is compiled and tuned once, for all sizes that want it. Of these few are chosen, so that every
size has one that is about as fast there as the best (`tune/choose`, SyCCL §5).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from hccc.base.interruptible import anytime, interruptible
from hccc.driver.options import Options
from hccc.driver.structures import MOST_TRIED
from hccc.driver.tune import choose
from hccc.driver.tune.sizes import parsed
from hccc.driver.tune.tune import spread
from hccc.ir.arrays import I8
from hccc.ir.collective import ROOTED, OpType
from hccc.ir.program import Program
from hccc.ir.text import microseconds as us
from hccc.ir.text import size as size_text
from hccc.ir.topology import Topology
from hccc.lang.transfer import printer
from hccc.synth.bounds.certificate import certificate
from hccc.synth.bounds.estimate import estimate
from hccc.synth.synthesis import (
    OnPhase,
    Synthesis,
    candidates,
    file_name,
    given_up,
    none_serves,
    simulated,
    slug,
    steps,
)
from hccc.synth.weighed import Weighed, in_order, nearest, weighed_facts

SIZES = "1K..4G"
_Done = tuple[str, dict[int, Weighed]]  # a candidate's name, and what it came to at each size


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A Program for some of the sizes. name: of the candidate; spans: first and last of sizes that
    are next to each other, bytes, ascending."""

    name: str
    program: Program
    spans: tuple[tuple[int, int], ...]

    def serves(self) -> str:
        """`1 KiB to 64 KiB, and 4 GiB`, for people."""
        ends = [dict.fromkeys(map(size_text, span)) for span in self.spans]
        return ", and ".join(" to ".join(span) for span in ends)

    def file_name(self) -> str:
        """`allgather-ring-1K-64K-and-4G.rccl`: letters, digits, `-`, and the suffix."""
        return file_name(self.program, self.name, self.spans)


@dataclass(frozen=True, slots=True, eq=False)
class SizesSynthesis:
    """What was found for several sizes.

    at: for each size, ascending, what was weighed and the best of it; chosen: Programs, in the
    order of the first size of each; choice: index into `chosen` for each size; seconds: it took;
    interrupted: Ctrl-C ended it early, and some sizes may have no simulated time.
    """

    at: tuple[Synthesis, ...]
    chosen: tuple[Chosen, ...]
    choice: tuple[int, ...]
    seconds: float
    interrupted: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the calls that were weighed, ascending."""
        return tuple(one.size for one in self.at)

    @property
    def programs(self) -> list[Program]:
        """Those chosen, for `compile` or to be printed."""
        return [one.program for one in self.chosen]

    def chosen_at(self, k: int) -> Weighed:
        """What the Program chosen for size `k` came to there; without a time where it was not
        simulated at that size."""
        name = self.chosen[self.choice[k]].name
        return next(one for one in self.at[k].weighed if one.name == name)

    def share(self, k: int) -> float:
        """Of the bound at size `k` that the Program chosen for it reaches, 0 to 1."""
        took = self.chosen_at(k).time
        return self.at[k].bound.time / took if took else 0.0

    def facts(self) -> dict[str, object]:
        """For JSON; times in µs, None where there are none."""
        c, t = self.programs[0].collective, self.at[0].topology
        return {
            "collective": c.op.value,
            "cluster": t.name,
            "ranks": c.n_ranks,
            "seed": self.at[0].seed,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "programs": [
                {
                    "method": one.name,
                    "name": one.program.name,
                    "file": one.file_name(),
                    "spans": [list(span) for span in one.spans],
                    "transfers": len(one.program),
                    "steps": steps(one.program),
                }
                for one in self.chosen
            ],
            "sizes": [
                {
                    "size": one.size,
                    "method": self.chosen_at(k).name,
                    "time": self.chosen_at(k).time,
                    "bound": one.bound.time,
                    "share": self.share(k),
                    "binding": one.bound.binding,
                    "weighed": list(map(weighed_facts, one.weighed)),
                }
                for k, one in enumerate(self.at)
            ],
        }


def program_text(made: SizesSynthesis, chosen: Chosen) -> str:
    """One of the Programs in the transfer language; its comments say how and for what it was
    made."""
    t, p = made.at[0].topology, chosen.program
    on = f" on {t.name}" if t.name else ""
    return printer.text(
        p,
        [
            f"{p.collective.op.value}{on}, {len(t)} ranks, for calls of {chosen.serves()}.",
            f"Method: {chosen.name}; seed {made.at[0].seed}.",
            f"Steps: {steps(p):,}. Transfers: {len(p):,}.",
            *_times(made, chosen),
        ],
    )


def _times(made: SizesSynthesis, chosen: Chosen) -> Iterator[str]:
    for k, one in enumerate(made.at):
        if made.chosen[made.choice[k]] is chosen:
            took = made.chosen_at(k).time
            told = "not simulated" if took is None else f"simulated {us(took)} µs"
            least = f"no schedule takes less than {us(one.bound.time)} µs ({one.bound.binding})"
            yield f"{size_text(one.size)}: {told}; {least}."


def synthesize_sizes(
    t: Topology,
    op: OpType,
    sizes: str = SIZES,
    *,
    root: int = 0,
    method: str = "auto",
    seed: int = 0,
    time_limit: float = 60.0,
    options: Options | None = None,
    on_phase: OnPhase = lambda _: None,
) -> SizesSynthesis:
    """The best Programs of `op` on `t` for calls of `sizes`, at most `options.plans`; at Ctrl-C, of
    those that were simulated by then.

    sizes: a range such as `1K..4G`, of which some are weighed (`tune/sizes`). Otherwise as
    `synthesis.synthesize`.

    Raises:
        UserError: E410 for no range; what `synthesis.synthesize` raises.
        KeyboardInterrupt: Ctrl-C before one was simulated.
    """
    begin, how, each = time.perf_counter(), options or Options(), parsed(sizes)
    bound = interruptible(certificate)(t, op, root if op in ROOTED else 0)
    found = candidates(
        t,
        op,
        each[0],
        bound,
        root=root,
        method=method,
        seed=seed,
        time_limit=time_limit,
        on_phase=on_phase,
    )
    if max(len(one.program) for one in found if one.program) > MOST_TRIED:
        each = spread(each)  # all that tuning tries of a large one
    estimated = interruptible(lambda: [_estimated(found, t, size) for size in each])()
    near = [nearest(one) for one in estimated]
    wanted = _wanted(near, each, how.plans)

    def simulate(done: list[_Done]) -> None:
        for one, at in wanted:
            on_phase(f"Simulating {one.name}, {len(done) + 1} of {len(wanted)}")
            done.append((one.name, simulated(one, t, at, how)))

    done, stopped = anytime(simulate, _any)
    if not _any(done):
        raise none_serves(op, [one for _, at in done for one in at.values()])
    stopped, took = stopped or given_up(found), time.perf_counter() - begin
    made = list[Synthesis]()
    for k, size in enumerate(each):
        came = {name: _with_estimate(at[size], estimated[k]) for name, at in done if size in at}
        weighed = tuple(in_order(estimated[k], near[k], came, bound.at(size).time))
        made.append(Synthesis(t, size, seed, weighed[0], weighed, bound.at(size), took, stopped))
    chosen, choice = _chosen(made, how.plans)
    return SizesSynthesis(tuple(made), chosen, choice, took, stopped)


def _estimated(found: Sequence[Weighed], t: Topology, size: int) -> list[Weighed]:
    return [
        replace(one, estimate=estimate(one.program, t, size)) if one.program else one
        for one in found
    ]


def _with_estimate(one: Weighed, estimated: Sequence[Weighed]) -> Weighed:
    return replace(one, estimate=next(e.estimate for e in estimated if e.name == one.name))


def _any(done: Sequence[_Done]) -> bool:
    return any(one.time is not None for _, at in done for one in at.values())


def _wanted(
    near: Sequence[Sequence[Weighed]], sizes: Sequence[int], plans: int
) -> list[tuple[Weighed, list[int]]]:
    """The candidates to compile, those for most sizes first, and the sizes: from the first to the
    last that want it, or all where one Program must do."""
    at = dict[str, list[int]]()
    for k, each in enumerate(near):
        for one in each:
            at.setdefault(one.name, []).append(k)
    first = {one.name: one for each in reversed(near) for one in reversed(each)}
    found = [
        (first[name], list(sizes if plans == 1 else sizes[ks[0] : ks[-1] + 1]))
        for name, ks in at.items()
    ]
    return sorted(found, key=lambda pair: -len(pair[1]))


def _chosen(made: Sequence[Synthesis], most: int) -> tuple[tuple[Chosen, ...], tuple[int, ...]]:
    """At most `most` Programs, and which of them each size has."""
    simulated = [one for at in made for one in at.weighed if one.time is not None]
    names = list(dict.fromkeys(one.name for one in simulated))
    times = np.full((1, len(names), len(made)), np.inf)
    for k, at in enumerate(made):
        for one in at.weighed:
            if one.time is not None:
                times[0, names.index(one.name), k] = one.time
    alike = np.ones(len(names), np.int64)
    regret, number = choose.regrets(times, alike), np.arange(len(names))
    kept = choose.kernels(regret, number, most)
    row: I8 = choose.assigned(regret, number, kept)[0]
    used = list(dict.fromkeys(row.tolist()))
    programs = {one.name: one.program for one in simulated}
    sizes = [one.size for one in made]
    chosen = list[Chosen]()
    for k, name in ((k, names[k]) for k in used):
        program, called = programs[name], slug(name, "_")
        assert program is not None
        chosen.append(Chosen(name, replace(program, name=called), _spans(row == k, sizes)))
    return tuple(chosen), tuple(used.index(k) for k in row.tolist())


def _spans(mine: np.ndarray, sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The first and last of each run of `sizes` where `mine`, bool[sizes], holds."""
    found = list[tuple[int, int]]()
    for held, run in groupby(range(len(sizes)), key=lambda k: bool(mine[k])):
        ks = list(run)
        if held:
            found.append((sizes[ks[0]], sizes[ks[-1]]))
    return tuple(found)
