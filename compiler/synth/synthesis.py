"""synthesis: what a synthesis returns: candidates, the Programs chosen, and for which sizes.

A `Program` is like any other: verified, and proved when it is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hccc.base.shown import brief, preformatted
from hccc.ir.program import Program
from hccc.ir.text import count as count_of
from hccc.ir.text import microseconds as us
from hccc.ir.text import size as size_text
from hccc.ir.topology import BYTES_PER_US, Topology
from hccc.lang.sketch.printer import text as sketch_text
from hccc.lang.transfer import printer
from hccc.synth.bounds.block_bound import THREAD_BLOCKS
from hccc.synth.bounds.bound import Bound
from hccc.synth.candidates import Candidate
from hccc.synth.cegis.programs import SolvedProgram

MOST_SKETCH_LINES = 128  # in the head of a program
LONGEST = 48  # characters of a method's name as a part of other names


@dataclass(frozen=True, slots=True, eq=False)
class SizeResult:
    """The candidates for calls of one size. size: bytes; weighed: by simulated time, then by
    estimate; bound: what no schedule beats; blocks: thread blocks that a rank may have, and
    block_time: µs that these take at least."""

    size: int
    weighed: tuple[Candidate, ...]
    bound: Bound
    blocks: int
    block_time: float

    @property
    def best(self) -> Candidate:
        """The candidate of least simulated time."""
        return self.weighed[0]

    @property
    def limited_by(self) -> str:
        """`thread blocks` where they take longer than the network; else what limits that."""
        return THREAD_BLOCKS if self.block_time > self.bound.time else self.bound.limited_by

    def share(self, candidate: Candidate | None = None) -> float:
        """Returns the bound over a candidate's time, 0 to 1; the best one's where left out."""
        took = (candidate or self.best).time
        return self.bound.time / took if took else 0.0

    def rows(self, chosen: str) -> list[tuple[str, Candidate]]:
        """Returns a candidate of each group with the same figures, and the group's name for people,
        `ring (2 more alike)`; `chosen`, a name, stands for its group."""
        alike: dict[tuple[str, str, str], list[Candidate]] = {}
        for one in self.weighed:
            took = "" if one.time is None else us(one.time)
            guess = us(one.estimate) if one.program else one.name  # of what was refused, each
            alike.setdefault((took, guess, one.refused), []).append(one)
        firsts = [min(same, key=lambda one: one.name != chosen) for same in alike.values()]
        return [
            (one.name + (f" ({len(same) - 1} more alike)" if same[1:] else ""), one)
            for one, same in zip(firsts, alike.values(), strict=True)
        ]

    def facts(self, chosen: Candidate) -> dict[str, object]:
        """Returns the result for JSON; times in µs, None where there are none."""
        return {
            "size": self.size,
            "method": chosen.name,
            "time": chosen.time,
            "bound": self.bound.time,
            "share": self.share(chosen),
            "binding": self.bound.binding,
            "limited_by": self.limited_by,
            "weighed": [candidate.facts() for candidate in self.weighed],
        }


@dataclass(frozen=True, slots=True, eq=False)
class ChosenProgram:
    """A Program for some of the sizes. name: of the candidate; spans: first and last of sizes that
    are next to each other, bytes, ascending."""

    name: str
    program: Program
    spans: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.program.transfers["step"].max(initial=-1)) + 1

    def serves(self) -> str:
        """Returns `1 KiB to 64 KiB, and 4 GiB`, for people."""
        ends = [dict.fromkeys(map(size_text, span)) for span in self.spans]
        return ", and ".join(" to ".join(span) for span in ends)

    def file_name(self) -> str:
        """Returns `allgather-ring-1K-64K-and-4G.rccl`: letters, digits, `-`, and the suffix."""
        spans = ["-".join(dict.fromkeys(map(_short, span))) for span in self.spans]
        op = self.program.collective.op.value.lower()
        return f"{op}-{slug(self.name, '-')}-{'-and-'.join(spans)}.rccl"

    def facts(self) -> dict[str, object]:
        """Returns the Program's facts for JSON."""
        return {
            "method": self.name,
            "name": self.program.name,
            "file": self.file_name(),
            "spans": [list(span) for span in self.spans],
            "transfers": len(self.program),
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True, eq=False)
class SizesSynthesis:
    """The result for some sizes.

    at: for each size, ascending, its candidates; chosen: Programs, in the order of the first size
    of each; choice: index into `chosen` for each size; seconds: it took; interrupted, late: Ctrl-C
    or the end of its time ended it early, and some sizes may have no simulated time.
    """

    topology: Topology
    seed: int
    at: tuple[SizeResult, ...]
    chosen: tuple[ChosenProgram, ...]
    choice: tuple[int, ...]
    seconds: float
    interrupted: bool = False
    late: bool = False

    def __repr__(self) -> str:
        names = ", ".join(chosen.name for chosen in self.chosen)
        sizes = " to ".join(dict.fromkeys(map(size_text, (self.sizes[0], self.sizes[-1]))))
        c = self.programs[0].collective
        return brief(self, f"{c.title} on {self.topology.name or 'a cluster'}, {sizes}: {names}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the calls that candidates were compared for, ascending."""
        return tuple(result.size for result in self.at)

    @property
    def programs(self) -> list[Program]:
        """The Programs chosen, for `compile` or to be printed."""
        return [chosen.program for chosen in self.chosen]

    def chosen_at(self, k: int) -> Candidate:
        """Returns the candidate chosen for size `k`; without a time where it was not simulated at
        that size."""
        name = self.chosen[self.choice[k]].name
        return next(candidate for candidate in self.at[k].weighed if candidate.name == name)

    def share(self, k: int = 0) -> float:
        """Returns the bound at size `k` over the time of the Program chosen for it, 0 to 1."""
        return self.at[k].share(self.chosen_at(k))

    def facts(self) -> dict[str, object]:
        """Returns the result for JSON; times in µs, None where there are none."""
        run = self._run_facts()
        return {
            **{key: run[key] for key in ("collective", "cluster", "ranks", "seed")},
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "late": self.late,
            "programs": [chosen.facts() for chosen in self.chosen],
            "sizes": [result.facts(self.chosen_at(k)) for k, result in enumerate(self.at)],
        }

    def _run_facts(self) -> dict[str, object]:
        """Returns the facts that do not depend on the size."""
        c = self.programs[0].collective
        return {
            "collective": c.op.value,
            "cluster": self.topology.name,
            "ranks": c.n_ranks,
            "seed": self.seed,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "late": self.late,
        }

    def comments(self, chosen: ChosenProgram) -> Iterator[str]:
        """Yields how and for which sizes a Program was made, for the head of its text."""
        on = f" on {self.topology.name}" if self.topology.name else ""
        op, ranks = chosen.program.collective.op.value, len(self.topology)
        yield f"{op}{on}, {ranks} ranks, for calls of {self._calls(chosen)}."
        yield f"Method: {chosen.name}; seed {self.seed}."
        yield f"Steps: {chosen.steps:,}. Transfers: {len(chosen.program):,}."
        yield from self._times(chosen)
        yield from self._sketches(chosen)

    def _sketches(self, chosen: ChosenProgram) -> Iterator[str]:
        """Yields the sketches that a Program was made of, as `--sketch` reads them."""
        named = (one for result in self.at for one in result.weighed if one.name == chosen.name)
        if allotment := next((one.allotment for one in named if one.allotment), None):
            lines = sketch_text(allotment).splitlines()
            yield "Of these sketches of one rank, moved to all others:"
            yield from lines[:MOST_SKETCH_LINES]
            if len(lines) > MOST_SKETCH_LINES:
                yield f"... and {len(lines) - MOST_SKETCH_LINES} more lines"

    def _calls(self, chosen: ChosenProgram) -> str:
        """Returns the sizes that a Program serves, for people."""
        return chosen.serves()

    def _times(self, chosen: ChosenProgram) -> Iterator[str]:
        """Yields the time and the bound of a Program at each size that it serves."""
        for k, result in enumerate(self.at):
            if self.chosen[self.choice[k]] is chosen:
                took, bound = self.chosen_at(k).time, result.bound
                time = "not simulated" if took is None else f"simulated {us(took)} µs"
                least = f"no schedule takes less than {us(bound.time)} µs: {bound.reason}"
                yield f"{size_text(result.size)}: {time}; {least}."


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Synthesis(SizesSynthesis):
    """The result for one size: `at` and `chosen` have one entry each."""

    @property
    def size(self) -> int:
        """Bytes of the call."""
        return self.at[0].size

    @property
    def weighed(self) -> tuple[Candidate, ...]:
        """The candidates, by simulated time, then by estimate."""
        return self.at[0].weighed

    @property
    def bound(self) -> Bound:
        """What no schedule beats."""
        return self.at[0].bound

    @property
    def best(self) -> Candidate:
        """The candidate of least simulated time."""
        return self.at[0].best

    @property
    def program(self) -> Program:
        """The best Program."""
        return self.chosen[0].program

    def file_name(self) -> str:
        """Returns `allgather-ring-64M.rccl`."""
        return self.chosen[0].file_name()

    def facts(self) -> dict[str, object]:
        """Returns the result for JSON; times in µs, None where there are none."""
        every = {
            **self._run_facts(),
            **self.chosen[0].facts(),
            **self.at[0].facts(self.best),
        }
        keys = (
            *("collective", "cluster", "ranks", "size", "seed", "method", "transfers", "steps"),
            *(
                "time",
                "bound",
                "share",
                "binding",
                "limited_by",
                "seconds",
                "interrupted",
                "late",
                "weighed",
            ),
        )
        return {key: every[key] for key in keys}

    def _calls(self, chosen: ChosenProgram) -> str:
        return count_of(self.size, "byte")

    def _times(self, chosen: ChosenProgram) -> Iterator[str]:
        yield f"Simulated: {us(self.best.time or 0.0)} µs."
        yield f"No schedule takes less than {us(self.bound.time)} µs: {self.bound.reason}."

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def text(self, *, explain: bool = False) -> str:
        """Returns the choice, how near it comes to the bound, and all candidates, for people.

        explain: also the calls of a solver.
        """
        return "\n".join([*self._lines(), *(self._solver_calls() if explain else [])])

    def _lines(self) -> Iterator[str]:
        p, time, bound = self.program, self.best.time or 0.0, self.bound
        on = f" on {self.topology.name}" if self.topology.name else ""
        size = count_of(self.size, "byte")
        yield f"{p.collective.op.value} over {len(self.topology)} ranks{on}, {size}"
        algbw = self.size / (time * BYTES_PER_US) if time else 0.0
        how = f"{count_of(len(p), 'transfer')} in {count_of(self.chosen[0].steps, 'step')}"
        yield f"  chosen       {self.best.name}: {how}"
        yield f"  simulated    {us(time)} µs, algbw {algbw:,.2f} GB/s, compiled for this size alone"
        yield f"  lower bound  {us(bound.time)} µs, {self.share():.1%} of it: {bound.reason}"
        if self.at[0].limited_by == THREAD_BLOCKS:
            least = us(self.at[0].block_time)
            yield f"  limited by   {self.at[0].blocks} thread blocks a rank, which take {least} µs"
        yield f"  seconds      {self.seconds:.2f}"
        rows = self.at[0].rows(self.best.name)
        width = max(len(name) for name, _ in rows)
        yield f"  weighed{'':<{max(0, width - 5)}}{'simulated':>14}{'estimate':>14}  (us)"
        for name, candidate in rows:
            shown = "-" if candidate.time is None else us(candidate.time)
            guess = "-" if candidate.program is None else us(candidate.estimate)
            why = f"  {candidate.refused}" if candidate.refused else ""
            yield f"    {name:<{width}}{shown:>14}{guess:>14}{why}"

    def _solver_calls(self) -> Iterator[str]:
        searched = self.best.searched
        if searched is None:
            yield "  the algorithm is built in: nothing was searched"
            return
        trace = searched.trace if isinstance(searched, SolvedProgram) else ()
        steps = f"{searched.steps} steps, {searched.bound} at least"
        yield f"  schedule     {steps}; {len(trace)} calls of a solver"
        for k, call in enumerate(trace):
            at = "" if call.checkpoint is None else f", the first at step {call.checkpoint}"
            asked = f"{call.verdict.name.lower()}, {call.variables:,} variables"
            yield f"    {k + 1:>3}. {call.steps} steps: {asked}, {call.seconds:.2f} s"
            if call.load is not None:
                yield f"         no resource in use for more than {call.load:g} steps"
                continue
            yield (
                f"         before: {call.violations} violations{at}; {len(call.pruned)} pruned; "
                f"frozen: {call.frozen} steps, {call.frozen_transfers} transfers; "
                f"{call.kept} constraints kept"
            )


def program_text(synthesis: SizesSynthesis, chosen: ChosenProgram | None = None) -> str:
    """Returns a Program chosen, the first where left out, in the transfer language; its comments
    say how and for which sizes it was made."""
    chosen = chosen or synthesis.chosen[0]
    return printer.text(chosen.program, list(synthesis.comments(chosen)))


def slug(method: str, between: str) -> str:
    """Returns a method's name as a part of other names: `greedy-2-chunks-a-rank`."""
    words: Sequence[str] = re.findall(r"[a-z0-9]+", method.lower())
    return between.join(words)[:LONGEST].strip(between) or "made"


def _short(size: int) -> str:
    """Returns `64K`; bytes where they are no whole number of a unit."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)
