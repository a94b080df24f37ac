"""job_lanes: a job's lanes in plain Python, the tasks of all ranks in any order that they allow.

Every element of a buffer that nobody has written is None, and none is read. It shares no code with
the lanes in C++.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hccc.ir.collective import OpType
from hccc.ir.job import Job
from hccc.ir.uneven import RECEIVE, SEND, BlockTable
from hccc.runtime.job.schedule import JobBuffer, JobSchedule, Kind, schedule

Memory = list[Any]
_PASSES = (Kind.SEND, Kind.RECEIVE)


@dataclass
class RankLanes:
    """One rank: its buffers, and how far each lane is."""

    plan: JobSchedule
    buffers: dict[int, Memory]
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.done = [0] * (len(self.plan.lane_begin) - 1)

    def next(self, lane: int) -> list[Any]:
        """Returns the tasks that a lane does next, together; none where it waits or is done."""
        left = self.plan.lane(lane)[self.done[lane] :]
        if not len(left):
            return []
        group = [left[0]]
        if left[0]["kind"] in _PASSES:
            for task in left[1:]:
                if task["kind"] not in _PASSES or task["group"] != left[0]["group"]:
                    break
                group.append(task)
        for task in group:
            first = int(task["first_wait"])
            for wait in self.plan.waits[first : first + int(task["n_waits"])]:
                if self.done[int(wait["lane"])] < int(wait["tasks"]):
                    return []
        return group

    def read(self, task: Any, what: str = "from", length: int | None = None) -> Memory:
        """Reads a place of a task. The room behind a short block in scratch is gathered too."""
        at, n = int(task[f"{what}_at"]), int(task["count"]) if length is None else length
        buffer = int(task[what])
        found = self.buffers[buffer][at : at + n]
        padded = (task["kind"], buffer) == (Kind.ALL_GATHER, JobBuffer.SCRATCH)
        assert len(found) == n and (padded or None not in found), f"{task} reads what nobody wrote"
        return list(found)

    def write(self, task: Any, values: Memory) -> None:
        """Writes the place of a task."""
        at, into = int(task["to_at"]), self.buffers[int(task["to"])]
        assert at + len(values) <= len(into), f"{task} writes past the end"
        into[at : at + len(values)] = values


class World:
    """All ranks of a job in a call."""

    def __init__(
        self,
        job: Job,
        count: int,
        batches: int,
        in_place: bool,
        inputs: list[Memory],
        lanes: bool = True,
        by_library: Sequence[bool] = (),
        blocks: BlockTable | None = None,
    ) -> None:
        """Begins a call. blocks: the lengths and places of an uneven call's."""
        c = self.collective = job.collective
        self.job, self.sent = job, 0
        self.ranks: list[RankLanes] = []
        for r in range(c.n_ranks):
            plan = schedule(
                job, r, count, batches, in_place, lanes, by_library=by_library, blocks=blocks
            )
            into: Memory = [None] * (c.output_blocks(r) * count)
            given: Memory = list(inputs[r])
            offset = c.alias_offset(r) // c.chunks_per_block * count
            if blocks is not None:
                into = [None] * int(blocks.sizes[r, RECEIVE])
                own, k = blocks.places[r], r if c.op is not OpType.ALLTOALL else 0
                offset = int(own[RECEIVE, k] if c.output_blocks(r) > 1 else -own[SEND, k])
                offset = 0 if c.op is OpType.ALLTOALL else offset
            if in_place and c.output_blocks(r) and c.input_blocks(r):
                given, into = _together(offset, given, into)
            buffers: dict[int, Memory] = {
                JobBuffer.INPUT: given,
                JobBuffer.OUTPUT: into,
                JobBuffer.SCRATCH: [None] * plan.scratch,
                JobBuffer.ARRIVED: [None] * plan.arrived,
            }
            self.ranks.append(RankLanes(plan, buffers))

    def run(self, pick: random.Random, combine: Callable[[Any, Any], Any]) -> None:
        """Does all tasks, in an order that `pick` chooses among those that are possible."""
        self._combine = combine
        while True:
            heads = [
                (r, lane, group)
                for r, rank in enumerate(self.ranks)
                for lane in range(len(rank.done))
                if (group := rank.next(lane))
            ]
            pick.shuffle(heads)
            if not any(self._do(heads, *head) for head in heads):
                break
        for r, rank in enumerate(self.ranks):
            for lane, done in enumerate(rank.done):
                assert done == len(rank.plan.lane(lane)), f"rank {r}, lane {lane} stands still"

    def _do(self, heads: list[Any], r: int, lane: int, group: list[Any]) -> bool:
        rank, task = self.ranks[r], group[0]
        match Kind(int(task["kind"])):
            case Kind.ADD:
                pair = zip(rank.read(task), rank.read(task, "with"), strict=True)
                rank.write(task, [self._combine(a, b) for a, b in pair])
            case Kind.COPY:
                rank.write(task, rank.read(task))
            case Kind.HOP_SEND:
                return self._hop(heads, r, lane, task)
            case Kind.HOP_RECEIVE:
                return False  # its sender does it
            case Kind.SEND | Kind.RECEIVE:
                return self._pass(heads, r)
            case Kind.REDUCE_PAIR:
                return self._reduce_pair(heads, task)
            case kind:
                return self._collective(heads, r, task, kind)
        rank.done[lane] += 1
        return True

    def _hop(self, heads: list[Any], r: int, lane: int, task: Any) -> bool:
        for other, its_lane, group in heads:
            its = group[0]
            if other == task["peer"] and its["kind"] == Kind.HOP_RECEIVE and its["peer"] == r:
                assert (its["count"], its["step"]) == (task["count"], task["step"])
                self.ranks[other].write(its, self.ranks[r].read(task))
                self.ranks[r].done[lane] += 1
                self.ranks[other].done[its_lane] += 1
                self.sent += int(task["count"])
                return True
        return False

    def _reduce_pair(self, heads: list[Any], task: Any) -> bool:
        """Adds two ranks' pieces, of which one came over the border, at the border rank."""
        r = next(r for r, _, group in heads if group[0] is task)
        members = self.job.clusters.members(int(self.job.clusters.of_ranks()[r]))
        both = [members[int(task[name])] for name in ("peer", "within")]
        assert r in both
        tasks = {other: group[0] for other, lane, group in heads if lane == 0 and other in both}
        if len(tasks) < 2:
            return False
        target, helper = (tasks[one] for one in both)
        for name in ("kind", "step", "count", "peer", "within"):
            if target[name] != helper[name]:
                return False  # one is at something else yet
        pair = zip(self.ranks[both[0]].read(target), self.ranks[both[1]].read(helper), strict=True)
        self.ranks[both[0]].write(target, [self._combine(a, b) for a, b in pair])
        for one in both:
            self.ranks[one].done[0] += 1
        return True

    def _pass(self, heads: list[Any], r: int) -> bool:
        """Does the groups of a vendor cluster's ranks whose sends and receives are all there."""
        members = self.job.clusters.members(int(self.job.clusters.of_ranks()[r]))
        groups = {
            other: group
            for other, lane, group in heads
            if lane == 0 and other in members and group[0]["kind"] in _PASSES
        }
        need, seen = {r}, set[int]()
        while need - seen:
            one = (need - seen).pop()
            if one not in groups:
                return False
            seen.add(one)
            need |= {members[int(task["peer"])] for task in groups[one]}
        moved = []
        for one in seen:
            for task in groups[one]:
                if self._other_end(members, groups, one, task) is None:
                    return False  # a peer is at something else yet
                if task["kind"] == Kind.RECEIVE:
                    moved.append((one, task, self._sent_to(members, groups, one, task)))
        for one, task, values in moved:
            self.ranks[one].write(task, values)
        for one in seen:
            self.ranks[one].done[0] += len(groups[one])
        return True

    def _other_end(self, members: list[int], groups: Any, one: int, task: Any) -> Any | None:
        """Returns the task of a peer that a send or receive meets: the one of the same turn."""
        peer = members[int(task["peer"])]

        def between(of: int, kind: int, to: int) -> list[Any]:
            return [x for x in groups[of] if x["kind"] == kind and members[int(x["peer"])] == to]

        turn = next(k for k, x in enumerate(between(one, task["kind"], peer)) if x is task)
        theirs = between(peer, Kind.SEND + Kind.RECEIVE - task["kind"], one)
        return theirs[turn] if turn < len(theirs) else None

    def _sent_to(self, members: list[int], groups: Any, one: int, task: Any) -> Memory:
        send = self._other_end(members, groups, one, task)
        assert send is not None
        assert (send["count"], send["step"]) == (task["count"], task["step"])
        return self.ranks[members[int(task["peer"])]].read(send)

    def _collective(self, heads: list[Any], r: int, task: Any, kind: Kind) -> bool:
        members = self.job.clusters.members(int(self.job.clusters.of_ranks()[r]))
        found = {
            other: group[0]
            for other, lane, group in heads
            if lane == 0 and group[0]["kind"] < Kind.SEND
        }
        if any(m not in found for m in members):
            return False
        tasks = [found[m] for m in members]
        for its in tasks:
            for name in ("kind", "step", "count", "peer"):
                assert its[name] == task[name], f"{its} beside {task}"
        n, count = len(members), int(task["count"])
        ranks = [self.ranks[m] for m in members]
        root = int(task["peer"])
        if kind is Kind.BROADCAST:
            values = ranks[root].read(tasks[root])
            for rank, its in zip(ranks, tasks, strict=True):
                rank.write(its, values)
        elif kind is Kind.ALL_GATHER:
            each = [rank.read(its) for rank, its in zip(ranks, tasks, strict=True)]
            for rank, its in zip(ranks, tasks, strict=True):
                rank.write(its, [value for one in each for value in one])
        else:
            length = count * n if kind is Kind.REDUCE_SCATTER else count
            each = [rank.read(its, length=length) for rank, its in zip(ranks, tasks, strict=True)]
            total = each[0]
            for more in each[1:]:
                total = [self._combine(a, b) for a, b in zip(total, more, strict=True)]
            for k, (rank, its) in enumerate(zip(ranks, tasks, strict=True)):
                if kind is Kind.REDUCE_SCATTER:
                    rank.write(its, total[k * count : (k + 1) * count])
                elif k == root:
                    rank.write(its, total)
        for m in members:
            self.ranks[m].done[0] += 1
        return True


class _Window(list[Any]):
    """A part of another list."""

    def __init__(self, of: Memory, at: int, n: int) -> None:
        self._of, self._at, self._n = of, at, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, key: Any) -> Any:
        return self._of[self._at : self._at + self._n][key]

    def __setitem__(self, key: Any, values: Any) -> None:
        self._of[key.start + self._at : key.stop + self._at] = values


def _together(offset: int, given: Memory, into: Memory) -> tuple[Memory, Memory]:
    """Returns both buffers in one memory: the input begins so many elements after the output."""
    if offset >= 0:
        memory = list(into) if len(into) >= len(given) else [None] * len(given)
        memory[offset : offset + len(given)] = given
        return _Window(memory, offset, len(given)), _Window(memory, 0, len(into))
    memory = list(given)
    return _Window(memory, 0, len(given)), _Window(memory, -offset, len(into))
