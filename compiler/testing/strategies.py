"""strategies: hypothesis strategies for programs, right and wrong, options and plans.

from hypothesis import given
from hccc.testing import assert_correct, correct_programs

@given(correct_programs())
def test_mine(program): ...
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from hccc.driver.compilation import compile_program
from hccc.driver.options import AUTO, Options
from hccc.ir.choices import Accumulate, Allocator, Fusion, NetworkLowering, Scheduler
from hccc.ir.collective import PROGRAMMABLE, ROOTED, UNEVEN, Collective, OpType, block_count
from hccc.ir.demand import Demand
from hccc.ir.plan import Plan
from hccc.ir.program import Program
from hccc.ir.transport import PURE, Transport
from hccc.testing.grow import Choose, grow
from hccc.testing.mutate import MUTATIONS, Mutant, applicable, mutate
from hccc.testing.reference import is_correct

MAX_TRANSFERS = 96  # about how many an example has at most: what hypothesis shrinks well


def _chooser(draw: st.DrawFn) -> Choose:
    return lambda bound: draw(st.integers(0, bound)) if bound > 0 else 0


@st.composite
def demands(draw: st.DrawFn, n_ranks: int, max_blocks: int = 4) -> Demand:
    """Draws a demand of which something must move: blocks that some ranks have and some want, or
    pieces of sums."""
    ranks = st.integers(0, n_ranks - 1)
    has, wants, sums = [], [], []
    for _ in range(draw(st.integers(1, max_blocks))):
        sums.append(draw(st.booleans()))
        has.append(draw(st.sets(ranks, min_size=1 + sums[-1])))
        wants.append(draw(st.sets(ranks, min_size=1)))
    if not (sums[0] or wants[0] - has[0]):
        wants[0] |= set(range(n_ranks)) - has[0]
        sums[0] = len(has[0]) == n_ranks
    starts, ends = (
        np.array([[r in one for r in range(n_ranks)] for one in x]) for x in (has, wants)
    )
    return Demand(starts, ends, np.array(sums))


@st.composite
def collectives(
    draw: st.DrawFn,
    op: OpType | None = None,
    max_ranks: int = 8,
    max_chunks_per_block: int = 3,
    max_transfers: int = MAX_TRANSFERS,
    uneven: bool | None = False,
) -> Collective:
    """Draws a collective of at least two ranks, with few enough chunks for `max_transfers`; also
    demands.

    uneven: whether its blocks have lengths of their own, as Alltoallv's (which has the operation
    of Alltoall); None: some do.
    """
    op = op or draw(st.sampled_from(UNEVEN if uneven else (*PROGRAMMABLE, OpType.CUSTOM)))
    if op is OpType.CUSTOM:
        n_ranks = draw(st.integers(2, max_ranks))
        most = max(1, max_transfers // (2 * n_ranks))
        per = draw(st.integers(1, min(most, max_chunks_per_block)))
        return Collective.of(draw(demands(n_ranks, min(4, max(1, most // per)))), per)

    def least(n_ranks: int, per: int) -> int:  # transfers of the shortest program
        moves = {OpType.ALLREDUCE: 2 * n_ranks, OpType.REDUCESCATTER: n_ranks}
        moves |= {OpType.REDUCE: n_ranks, OpType.BROADCAST: n_ranks, OpType.ALLGATHER: n_ranks}
        return block_count(op, n_ranks) * per * moves.get(op, 1)

    sizes = [
        (n_ranks, per)
        for per in range(1, max_chunks_per_block + 1)
        for n_ranks in range(2, max_ranks + 1)
        if least(n_ranks, per) <= max_transfers
    ]
    n_ranks, per = draw(st.sampled_from(sizes))
    root = draw(st.integers(0, n_ranks - 1)) if op in ROOTED else 0
    if uneven is None:
        uneven = op in UNEVEN and draw(st.booleans())
    return Collective(op, n_ranks, block_count(op, n_ranks) * per, root, uneven)


@st.composite
def correct_programs(
    draw: st.DrawFn,
    collective: OpType | Collective | None = None,
    max_ranks: int = 8,
    max_chunks_per_block: int = 3,
    max_transfers: int = MAX_TRANSFERS,
    extras: bool = True,
    uneven: bool | None = False,
) -> Program:
    """Draws programs that perform their collective, grown by construction (`grow`).

    collective: an operation, or the exact collective; any by default. extras: relays by ranks that
    do not want the chunk, second deliveries and detours. max_transfers: a rough limit of the size.
    uneven: as of `collectives`.
    """
    if not isinstance(collective, Collective):
        size = (max_ranks, max_chunks_per_block, max_transfers)
        collective = draw(collectives(collective, *size, uneven))
    n = collective.n_ranks
    gpus = draw(st.sampled_from([g for g in range(n, 0, -1) if n % g == 0]))
    nics = gpus - draw(st.integers(0, gpus - 1))
    channels = draw(st.integers(1, 2))
    return grow(
        collective,
        _chooser(draw),
        gpus_per_node=gpus,
        nics_per_node=nics,
        channels=channels,
        extras=extras,
    )


@st.composite
def mutants(draw: st.DrawFn, programs: st.SearchStrategy[Program] | None = None) -> Mutant:
    """Draws correct programs with one mutation, which may still be correct: ask `is_correct`."""
    where = iter(draw(st.tuples(*[st.integers(0, MAX_TRANSFERS)] * 3)))
    name = draw(st.sampled_from(list(MUTATIONS)))  # drawn first, so that the program can shrink
    original = draw(correct_programs() if programs is None else programs)
    assume(name in applicable(original))
    return mutate(original, name, lambda bound: next(where) % (bound + 1))


def wrong_programs(programs: st.SearchStrategy[Program] | None = None) -> st.SearchStrategy[Mutant]:
    """Draws correct programs made wrong by one mutation."""
    return mutants(programs).filter(lambda m: not is_correct(m.program))


def options(*, prove: bool = True) -> st.SearchStrategy[Options]:
    """Draws all options of a compilation, with every IR checked."""
    return st.builds(
        Options,
        scheduler=st.sampled_from(list(Scheduler)),
        allocator=st.sampled_from(list(Allocator)),
        fuse=st.sampled_from([*Fusion, AUTO]),
        transport=st.sampled_from([Transport.AUTO, *PURE]),
        network_lowering=st.sampled_from([AUTO, *NetworkLowering]),
        accumulate=st.sampled_from([None, *Accumulate]),
        slots=st.sampled_from([1, 2, 8]),
        max_sms=st.sampled_from([None, 1, 2]),
        verify_each=st.just(True),
        prove=st.just(prove),
    )


@st.composite
def plans(
    draw: st.DrawFn,
    programs: st.SearchStrategy[Program] | None = None,
    choices: st.SearchStrategy[Options] | None = None,
) -> Plan:
    """Draws plans of correct programs, compiled with drawn options and proved."""
    program = draw(correct_programs() if programs is None else programs)
    return compile_program(program, draw(options() if choices is None else choices)).plan
