"""header: the header of a program: the meaning and the legal values of its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hccc.ir.collective import ROOTED, Collective, OpType, block_count, spelled, spellings
from hccc.ir.demand import EXAMPLE, Demand, DemandFault
from hccc.ir.demand import parse as parse_demand
from hccc.ir.limits import MAX_CHANNELS, MAX_CHUNKS, MAX_RANKS, MAX_WARPS
from hccc.ir.names import IDENTIFIER, objection
from hccc.lang.mistakes import At, Mistake, clip, did_you_mean
from hccc.lang.transfer.syntax import Expr, NumberExpr, Pair, ProgramSyntax, StringExpr

KEYS = (
    "nRanks",
    "nChannels",
    "nWarps",
    "AlgoName",
    "OpType",
    "GPUPerNode",
    "NICPerNode",
    "nChunks",
    "Root",
    "Demand",
)


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header; defaults filled in."""

    name: str
    collective: Collective
    channels: int
    warps: int
    gpus_per_node: int
    nics_per_node: int

    def variables(self) -> dict[str, int]:
        """Returns the values that a program's body can read."""
        c = self.collective
        values = {
            "nRanks": c.n_ranks,
            "nChannels": self.channels,
            "nWarps": self.warps,
            "GPUPerNode": self.gpus_per_node,
            "NICPerNode": self.nics_per_node,
            "nChunks": c.n_chunks,
        }
        return {**values, "Root": c.root} if c.rooted else values


def check_header(algorithm: ProgramSyntax, evaluate: Callable[[Expr], int]) -> Header:
    """Returns the header of a program. Raises `Mistake` at the first wrong key or value.

    evaluate: computes an expression of the constants above the header.
    """
    keys = HeaderKeys(algorithm.pairs, algorithm.at, evaluate, KEYS)
    n_ranks = keys.integer("nRanks", None, 1, MAX_RANKS)
    demand = keys.demand(n_ranks)
    op, uneven = keys.op_type() if demand is None else (OpType.CUSTOM, False)
    blocks = block_count(op, n_ranks) if demand is None else len(demand)
    chunks = keys.chunks(op, n_ranks, blocks, max(n_ranks, blocks) if demand is None else blocks)
    gpus = keys.integer("GPUPerNode", n_ranks, 1, n_ranks)
    if n_ranks % gpus:
        message = f"nRanks={n_ranks} is not a multiple of GPUPerNode={gpus}"
        raise Mistake("E012", message, keys.at("GPUPerNode"))
    return Header(
        name=keys.name(),
        collective=Collective(op, n_ranks, chunks, keys.root(op, n_ranks), uneven, demand),
        channels=keys.integer("nChannels", 1, 1, MAX_CHANNELS),
        warps=keys.integer("nWarps", 16, 1, MAX_WARPS),
        gpus_per_node=gpus,
        nics_per_node=keys.integer("NICPerNode", gpus, 1, gpus),
    )


class HeaderKeys:
    """The values of a header. known: the keys that it may have."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        at: At,
        evaluate: Callable[[Expr], int],
        known: Sequence[str],
    ) -> None:
        self._at, self._evaluated, self._known = at, evaluate, known
        self._pairs: dict[str, Pair] = {}
        for pair in pairs:
            if pair.key not in known:
                raise _unknown_key(pair, known)
            if pair.key in self._pairs:
                raise Mistake("E010", f"{pair.key} is given twice", pair.key_at)
            self._pairs[pair.key] = pair

    def at(self, key: str) -> At:
        """Returns the place of a key's value, or else of the header's name."""
        return self._pairs[key].value.at if key in self._pairs else self._at

    def _required(self, key: str) -> Pair:
        if key not in self._pairs:
            message = f"the header does not say {key}"
            example = 'ResCCLAlgo(nRanks=8, OpType="Allreduce"):'
            raise Mistake("E011", message, self._at, f"for example `{example}`")
        return self._pairs[key]

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        """Returns the value of an integer key, within low..high."""
        if key not in self._pairs and default is not None:
            return default
        given = self._required(key).value
        if isinstance(given, StringExpr):
            raise Mistake("E012", f"{key} must be an integer, without quotes", given.at)
        value = given.value if isinstance(given, NumberExpr) else self._evaluated(given)
        if not low <= value <= high:
            raise Mistake("E012", f"{key}={value} is not in {low}..{high}", given.at)
        return value

    def _text(self, key: str) -> str:
        match self._required(key).value:
            case StringExpr(value):
                return value
        raise Mistake("E012", f"{key} must be a string in quotes", self.at(key))

    def name(self) -> str:
        """Returns AlgoName, which becomes part of file and function names."""
        if "AlgoName" not in self._pairs:
            return "algo"
        name = self._text("AlgoName")
        if not IDENTIFIER.fullmatch(name):
            help = "use letters, digits and `_`, no digit first, at most 63 in all"
            message = f"AlgoName {clip(name)!a} cannot name a function"
            raise Mistake("E012", message, self.at("AlgoName"), help)
        if why := objection(name):
            help = "the kernels' C names begin with AlgoName: choose another"
            raise Mistake("E012", f"AlgoName {name!a}: {why}", self.at("AlgoName"), help)
        return name

    def op_type(self) -> tuple[OpType, bool]:
        """Returns OpType, in any case, and whether its blocks have lengths of their own."""
        text = self._text("OpType")
        if found := spelled(text):
            return found
        by_name = {name.lower(): name for name in spellings()}
        near = did_you_mean(text.lower(), by_name)
        known = ", ".join(by_name.values())
        help = f"did you mean {by_name[near[0]]}?" if near else f"one of {known}"
        message = f"there is no collective {clip(text)!a}"
        if text.lower() == OpType.CUSTOM and "Demand" in self._known:
            message, help = "a custom collective needs a demand", f'Demand="0 -> 1"; {EXAMPLE}'
        raise Mistake("E012", message, self.at("OpType"), help)

    def demand(self, n_ranks: int) -> Demand | None:
        """Returns Demand, which makes the collective a custom one."""
        if "Demand" not in self._pairs:
            return None
        op, at = self._text("OpType"), self.at("Demand")
        if op.lower() != OpType.CUSTOM:
            message = f"a demand says what is done, and so does OpType={clip(op)!a}"
            raise Mistake("E012", message, self.at("OpType"), 'OpType="custom" has a demand')
        text = self._text("Demand")
        try:
            return parse_demand(text, n_ranks)
        except DemandFault as fault:
            begin = at.column + 1 + fault.begin
            place = At(at.line, begin, begin + max(1, fault.end - fault.begin))
            raise Mistake("E017", fault.message, place, fault.help) from None

    def chunks(self, op: OpType, n_ranks: int, blocks: int, default: int) -> int:
        """Returns nChunks, a multiple of `blocks`."""
        chunks = self.integer("nChunks", default, 1, MAX_CHUNKS)
        if chunks > MAX_CHUNKS:
            message = f"{op.value} over {n_ranks} ranks needs more than {MAX_CHUNKS:,} chunks"
            raise Mistake("E012", message, self.at("nRanks"))
        if chunks % blocks:
            message = f"nChunks={chunks} is not a multiple of {blocks}, the blocks of {op.value}"
            raise Mistake("E012", message, self.at("nChunks"))
        return chunks

    def root(self, op: OpType, n_ranks: int) -> int:
        """Returns Root; only rooted collectives have one."""
        if op not in ROOTED and "Root" in self._pairs:
            raise Mistake("E012", f"{op.value} has no root", self._pairs["Root"].key_at)
        return self.integer("Root", 0, 0, n_ranks - 1)


def _unknown_key(pair: Pair, known: Sequence[str]) -> Mistake:
    near = did_you_mean(pair.key, known)
    hint = f"did you mean {near[0]}? " if near else ""
    help = f"{hint}the keys are {', '.join(known)}"
    return Mistake("E010", f"the header has no key `{clip(pair.key)}`", pair.key_at, help)
