"""budget: limits on evaluating a program: a short bad program must not take hours or all memory."""

from __future__ import annotations

from dataclasses import dataclass

from hccc.lang.mistakes import At, Mistake

MAX_ITERATIONS = 1 << 28
MAX_ONE_BY_ONE = 1 << 20
MAX_TRANSFERS = 1 << 25  # a hierarchical mesh of 4,096 ranks: five seconds, two gigabytes
# In elements of array operations (about 2 ns); an operation itself costs as much as OVERHEAD.
MAX_WORK = 1 << 32
OVERHEAD = 256
CALL_OVERHEAD = 1024  # of a function of the program's own
ARRAY_OVERHEAD = 2048


class TooMuch(Mistake):
    """A limit of the whole program is exceeded."""


@dataclass(slots=True)
class Budget:
    """The costs so far."""

    iterations: int = 0
    one_by_one: int = 0
    transfers: int = 0
    work: int = 0

    def spend(self, iterations: int) -> None:
        """Spends one operation over `iterations` iterations. Raises `TooMuch` E114."""
        self.work += OVERHEAD if iterations <= 1 else ARRAY_OVERHEAD + iterations
        if self.work > MAX_WORK:
            raise TooMuch("E114", "evaluating this program takes too long", help=_SMALLER)

    def call(self) -> None:
        """Spends one call of a function that the program defines."""
        self.work += CALL_OVERHEAD
        self.spend(1)

    def iterate(self, count: int, at: At) -> None:
        """Spends `count` more iterations of the loop at `at`."""
        self.foresee_iterations(count, at)
        self.iterations += count

    def foresee_iterations(self, count: int, at: At) -> None:
        """Raises as `iterate`, spending nothing."""
        if self.iterations + count > MAX_ITERATIONS:
            message = f"the loops up to here make more than {MAX_ITERATIONS:,} iterations"
            raise TooMuch("E104", message, at, _SMALLER)

    def iterate_one_by_one(self, count: int, carried: str, at: At) -> None:
        """Spends `count` more iterations of a loop that carries the variable `carried`."""
        self.one_by_one += count
        if self.one_by_one > MAX_ONE_BY_ONE:
            message = (
                f"this loop carries `{carried}` from one iteration to the next, and such loops "
                f"may make {MAX_ONE_BY_ONE:,} iterations in all"
            )
            help = f"compute `{carried}` from the loop variables"
            raise TooMuch("E113", message, at, help)

    def transfer(self, count: int, at: At) -> None:
        """Spends `count` more transfers, about to be made."""
        self.foresee_transfers(count, at)
        self.transfers += count

    def foresee_transfers(self, count: int, at: At) -> None:
        """Raises as `transfer`, spending nothing."""
        if self.transfers + count > MAX_TRANSFERS:
            message = f"this program makes more than {MAX_TRANSFERS:,} transfers"
            raise TooMuch("E112", message, at)


_SMALLER = "is a bound of a `range` larger than meant?"
