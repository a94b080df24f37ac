"""Catalogue: ranges of message sizes, each with the Plan that serves it and its launch choices.

It becomes one library, whose entry picks the plan by the size of each call; calls in place and
out of place have ranges of their own. Sizes are nccl-tests': bytes of the larger buffer of the rank
that has most.

    ring_1 ring_2                      plans
    out of place       0  ring_1       ranges, each up to the start of the next of its kind
                   65536  ring_2, window 4
    in place           0  ring_2

Invariants (`check`)
1. All plans do the same collective on the same ranks: one operation and root, and the same nodes
   and memory domains. Plans may differ in their number of chunks.
2. Ranges are sorted, out of place first. Those of a kind begin at 0, each after the one before, so
   that every size of a kind that is served has exactly one.
3. A range's plan serves its kind, with its window.
4. Every plan is used. Plan k of catalogue `ring` is called `ring_k`, counted from 1.
5. The windows are in the ranges; in the plans they are 0.
6. If one plan, run in one way, serves all sizes (`alone`), the catalogue adds nothing to it:
   name, provenance, kinds of calls, window and grain are the plan's, instead of 4 and 5.

Printed: versioned JSON, `ir/catalogue_json.py`; a plan alone as the JSON of that plan. Source:
SyCCL §5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hccc.base.diagnostics import InternalError, fail
from hccc.base.shown import brief
from hccc.ir.collective import Collective
from hccc.ir.micro_batch import COARSEST, FINEST
from hccc.ir.names import IDENTIFIER, objection
from hccc.ir.plan import Plan
from hccc.ir.provenance import Provenance

CATALOGUE_VERSION = 1
MOST_PLANS = 16
MOST_RANGES = 512
MOST_BYTES = 1 << 62  # of a message
_LONGEST_NAME = 60  # of a catalogue; the names of its plans begin with it
_CUT_NAME = 57  # the part of a longer name that they begin with, so that none equals it
_LARGEST_WINDOW = 2**31 - 1


class Range(NamedTuple):
    """Calls of one kind from a size on: the plan that serves them, and how it is run.

    in_place: the kind; begin: bytes of a message; plan: index into the catalogue's plans; window:
    for calls that name none, in micro-batches, 0 for the largest (`Plan.window`); grain: bytes,
    sets the micro-batch of calls that name none (`Plan.grain`).
    """

    in_place: bool
    begin: int
    plan: int
    window: int
    grain: int


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """One or several Plans of one collective, and the message sizes that each of them serves."""

    name: str
    plans: tuple[Plan, ...]
    ranges: tuple[Range, ...]
    provenance: Provenance | None = None

    def __repr__(self) -> str:
        n = len(self.plans)
        return brief(self, f"{self.name}: {self.collective.title}, {n} plan{'s' * (n > 1)}")

    @staticmethod
    def of(plan: Plan) -> Catalogue:
        """Returns the catalogue of one plan that serves all sizes in one way."""
        ranges = tuple(Range(kind, 0, 0, plan.window, plan.grain) for kind in plan.modes)
        return Catalogue(plan.name, (plan,), ranges, plan.provenance)

    @property
    def alone(self) -> bool:
        """Whether one plan, run in one way, serves all sizes (invariant 6)."""
        return len(self.plans) == 1 and self.plans[0].name == self.name

    @property
    def collective(self) -> Collective:
        """The collective of every plan; its `n_chunks` is that of the first."""
        return self.plans[0].collective

    @property
    def narrowest(self) -> Plan:
        """The plan with the fewest reductions, which are those that all plans have."""
        return min(self.plans, key=lambda plan: len(plan.operations))

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return self.collective.n_ranks

    @property
    def modes(self) -> tuple[bool, ...]:
        """The values of "in place" that the catalogue serves, as `Plan.modes`."""
        return tuple(sorted({part.in_place for part in self.ranges}))

    @property
    def keeps_input(self) -> bool:
        """Whether every out-of-place call leaves the send buffer as it was."""
        return all(plan.keeps_input for plan in self.plans)

    @property
    def last(self) -> Range:
        """The range of the largest sizes, out of place if that is served."""
        return self.pick(MOST_BYTES, self.modes[0])

    @property
    def largest(self) -> Plan:
        """The plan of the largest sizes, with its launch choices."""
        return self.plan_of(self.last)

    def pick(self, size: int, in_place: bool) -> Range:
        """Returns the range of a message of `size` bytes. O(ranges).

        Raises:
            InternalError: calls of this kind are not served, or the size is negative.
        """
        of_kind = [part for part in self.ranges if part.in_place == in_place]
        after = bisect_right(of_kind, size, key=lambda part: part.begin)
        if not after:
            raise InternalError(f"{self.name}: no range of in_place={in_place} has {size} bytes")
        return of_kind[after - 1]

    def end(self, part: Range) -> int | None:
        """Returns the first size (bytes) past a range; None for the last of its kind."""
        after = self.ranges.index(part) + 1
        if after < len(self.ranges) and self.ranges[after].in_place == part.in_place:
            return self.ranges[after].begin
        return None

    def plan_of(self, part: Range) -> Plan:
        """Returns the plan of a range, with its launch choices."""
        return replace(self.plans[part.plan], window=part.window, grain=part.grain)

    def renamed(self, name: str) -> Catalogue:
        """Returns the same catalogue under another name, which its plans' names follow."""
        if self.alone:
            return replace(self, name=name, plans=(replace(self.plans[0], name=name),))
        plans = (replace(plan, name=plan_name(name, k)) for k, plan in enumerate(self.plans))
        return replace(self, name=name, plans=tuple(plans))


def plan_name(name: str, k: int) -> str:
    """Returns the name of plan `k`, from 0, of the catalogue `name`."""
    stem = name if len(name) <= _LONGEST_NAME else name[:_CUT_NAME]
    return f"{stem}_{k + 1}"


def assembled(
    name: str,
    plans: Sequence[Plan],
    ranges: Sequence[Range],
    provenance: Provenance | None = None,
) -> Catalogue:
    """Returns the catalogue of `ranges` of `plans`.

    Ranges may be in any order; equal neighbours become one. Plans without a range are left out, the
    others are named and numbered in the order of the ranges; of packets they have room for the
    calls of their ranges alone. O(ranges log ranges).

    Raises:
        UserError: E319 (`check`).
    """
    kept: list[Range] = []
    for part in sorted(ranges):
        if not kept or _apart(kept[-1], part):
            kept.append(part)
    number = {plan: k for k, plan in enumerate(dict.fromkeys(part.plan for part in kept))}
    used = [plans[plan] for plan in number]
    if len({part[2:] for part in kept}) == 1:
        (plan,), how = used, kept[0]
        known = provenance or plan.provenance
        return Catalogue.of(
            replace(plan, name=name, window=how.window, grain=how.grain, provenance=known)
        )
    made = Catalogue(
        name,
        tuple(replace(p, name=plan_name(name, k), window=0) for k, p in enumerate(used)),
        tuple(part._replace(plan=number[part.plan]) for part in kept),
        provenance,
    )
    made = replace(made, plans=tuple(_as_called(made, k) for k in range(len(used))))
    check(made)
    return made


def _as_called(catalogue: Catalogue, k: int) -> Plan:
    """Returns plan `k` with packet slots for the calls that it gets, where a range ends them."""
    plan, ends = catalogue.plans[k], [catalogue.end(p) for p in catalogue.ranges if p.plan == k]
    known = [end for end in ends if end is not None]
    if not plan.max_bytes or len(known) < len(ends):
        return plan
    return replace(plan, max_bytes=min(plan.max_bytes, max(known)))


def _apart(before: Range, part: Range) -> bool:
    """Tells whether two successive ranges are of two kinds or run differently."""
    return (before.in_place, *before[2:]) != (part.in_place, *part[2:])


def check(catalogue: Catalogue) -> None:
    """Raises the first problem of a catalogue, whose plans are each sound.

    Raises:
        UserError: E319.
    """
    if catalogue.alone:
        if catalogue.ranges != Catalogue.of(catalogue.plans[0]).ranges:
            raise fail("E319", f"ranges: not those of {catalogue.name}, the only plan")
    else:
        check_several(catalogue)


def check_several(catalogue: Catalogue) -> None:
    """Raises the first problem of a catalogue whose plans or ranges differ.

    Raises:
        UserError: E319.
    """
    _names(catalogue)
    _same_work(catalogue.plans)
    _ranges(catalogue)
    unused = set(range(len(catalogue.plans))) - {part.plan for part in catalogue.ranges}
    for k in sorted(unused):
        raise fail("E319", f"plans[{k}]: no range names {catalogue.plans[k].name}")
    if len({part[2:] for part in catalogue.ranges}) == 1:
        help = "write the plan by itself"
        raise fail("E319", "ranges: all run the same plan in the same way", help=help)


def _names(catalogue: Catalogue) -> None:
    name, plans = catalogue.name, catalogue.plans
    if not IDENTIFIER.fullmatch(name):
        raise fail("E319", "name: not an identifier of C")
    if why := objection(name):
        raise fail("E319", f"name: {why}")
    if not 1 <= len(plans) <= MOST_PLANS:
        raise fail("E319", f"plans: {len(plans)} of them, there may be 1 to {MOST_PLANS}")
    for k, plan in enumerate(plans):
        if plan.name != plan_name(name, k):
            raise fail("E319", f"plans[{k}].name: {plan.name}, not {plan_name(name, k)}")
        if plan.window:
            raise fail("E319", f"plans[{k}].window: {plan.window}, which is for ranges to say")


def _same_work(plans: Sequence[Plan]) -> None:
    """Requires every plan to do the same as the first, on the same ranks."""
    first = plans[0]
    for k, plan in enumerate(plans):
        same = {
            "collective": _work(plan) == _work(first),
            "reductions": plan.reductions == first.reductions,
            "gpus_per_node": plan.gpus_per_node == first.gpus_per_node,
            "accumulate": plan.accumulate is first.accumulate,
            "memory_domain": np.array_equal(plan.memory_domain, first.memory_domain),
        }
        for field, alike in same.items():
            if not alike:
                raise fail("E319", f"plans[{k}].{field}: not that of {first.name}")


def _work(plan: Plan) -> tuple[str, int, int, int, bool]:
    """Returns the properties of a collective that callers see. Blocks of a custom one are its
    chunks."""
    c = plan.collective
    return c.name, c.n_ranks, c.root, c.most_blocks(), plan.reduces


def _ranges(catalogue: Catalogue) -> None:
    ranges = catalogue.ranges
    if not 1 <= len(ranges) <= MOST_RANGES:
        raise fail("E319", f"ranges: {len(ranges)} of them, there may be 1 to {MOST_RANGES}")
    for k, part in enumerate(ranges):
        _range(catalogue, k, part)
        before = ranges[k - 1] if k else None
        if before and (before.in_place, before.begin) >= (part.in_place, part.begin):
            raise fail("E319", f"ranges[{k}]: not after the one before")
        if part.begin and (before is None or before.in_place != part.in_place):
            raise fail("E319", f"ranges[{k}].begin: the first of its kind begins at {part.begin}")


def _range(catalogue: Catalogue, k: int, part: Range) -> None:
    """Requires that a range's plan can run as the range says."""
    if not 0 <= part.plan < len(catalogue.plans):
        raise fail("E319", f"ranges[{k}].plan: there is no plan {part.plan}")
    plan = catalogue.plans[part.plan]
    if part.in_place not in plan.modes:
        kind = "in place" if part.in_place else "out of place"
        raise fail("E319", f"ranges[{k}].plan: {plan.name} serves no calls {kind}")
    limits = {
        "begin": (part.begin, 0, MOST_BYTES),
        "window": (part.window, 0, plan.largest_window or _LARGEST_WINDOW),
        "grain": (part.grain, FINEST, COARSEST),
    }
    for field, (value, low, high) in limits.items():
        if not low <= value <= high:
            raise fail("E319", f"ranges[{k}].{field}: {value} is not in {low}..{high}")
