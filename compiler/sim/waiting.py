"""waiting: lines of blocks that wait for a flag, a message or a free slot."""

from __future__ import annotations

from hccc.base.jit.compiled import njit
from hccc.sim.state import TODO, State


@njit(allocates=False, always=True)
def push(s: State, b: int) -> None:
    """Marks block b to be tried."""
    s.lists[TODO, s.length[TODO]] = b
    s.length[TODO] += 1


@njit(allocates=False, always=True)
def stand(s: State, b: int, line: int) -> bool:
    """Puts block b in a line."""
    s.block[b].other = s.waiting[line]
    s.waiting[line] = b
    return True


@njit(allocates=False, always=True)
def wake(s: State, line: int, instance: int, via: int) -> None:
    """Lets all blocks in a line try again, because of `instance`, by transfer `via` (-1:
    memory)."""
    b = s.waiting[line]
    s.waiting[line] = -1
    while b >= 0:
        s.block[b].waker = instance
        s.block[b].via = via
        push(s, b)
        b = s.block[b].other
