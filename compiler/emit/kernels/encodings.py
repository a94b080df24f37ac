"""encodings: numbers of primitives as seen from their rank, so that alike ranks share tables.

A peer or a slot is most often "so many ranks on", or "so many nodes on, so many GPUs on". Counted
like that from the rank that executes a primitive, alike ranks have the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hccc.ir.arrays import I4, I8
from hccc.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class RankEncoding:
    """A way to count a number from a rank's place on: its part `value / step % ranks`.

    gpus: of a node, if nodes and GPUs are counted apart, else 0; ranks: 0 for numbers as they are.
    """

    ranks: int = 0
    gpus: int = 0
    step: int = 1

    def encode(self, value: I8, rank: I4) -> I8:
        """Returns a table's entry for `value` at `rank`: i8[n]. Needs value >= 0."""
        if not self.ranks:
            return value
        place, high = value // self.step % self.ranks, value // (self.step * self.ranks)
        away = (place - rank) % self.ranks
        if self.gpus:
            nodes = self.ranks // self.gpus
            node = (place // self.gpus - rank // self.gpus) % nodes
            away = node * self.gpus + (place - rank) % self.gpus
        return (high * self.ranks + away) * self.step + value % self.step

    def decoded(self, x: str, most: int) -> str:
        """Returns C for the value that is encoded as the name or literal `x`, at most `most`."""
        if not self.ranks:
            return x
        if self.step == 1 and most < self.ranks:
            return self._turned(x)
        part = f"{x} / {self.step}" if self.step > 1 else x
        text = self._turned(f"{part} % {self.ranks}", grouped=True)
        if most >= self.ranks * self.step:
            text = f"{x} / {self.ranks * self.step} * {self.ranks} + {text}"
        return f"({text}) * {self.step} + {x} % {self.step}" if self.step > 1 else text

    def _turned(self, x: str, grouped: bool = False) -> str:
        if not self.gpus:
            return "rank" if x == "0" else f"(rank + {x}) % {self.ranks}"
        if x.isdigit():
            return self._turned_by(*divmod(int(x), self.gpus))
        inner = f"({x})" if grouped else x
        node = f"(node + {inner} / {self.gpus}) % {self.ranks // self.gpus}"
        return f"{node} * {self.gpus} + (local + {inner} % {self.gpus}) % {self.gpus}"

    def _turned_by(self, nodes: int, gpus: int) -> str:
        node = f"(node + {nodes}) % {self.ranks // self.gpus}" if nodes else "node"
        local = f"(local + {gpus}) % {self.gpus}" if gpus else "local"
        return f"{node} * {self.gpus} + {local}"


ABSOLUTE = RankEncoding()


def encodings(plan: Plan) -> Iterator[RankEncoding]:
    """Yields the encodings worth trying for a plan's numbers, the simplest first."""
    yield ABSOLUTE
    n, gpus = plan.n_ranks, plan.gpus_per_node
    for step in sorted({1, plan.collective.chunks_per_block}):
        yield RankEncoding(n, 0, step)
        if 1 < gpus < n and n % gpus == 0:
            yield RankEncoding(n, gpus, step)
