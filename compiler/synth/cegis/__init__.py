"""cegis: schedules of the fewest steps by solver (HeteCCL §4-5, App. H, I)."""

from hccc.synth.cegis.search import SearchOutcome, SolverCall
from hccc.synth.cegis.synthesize import AllReduce, allreduce, synthesize

__all__ = ["AllReduce", "SearchOutcome", "SolverCall", "allreduce", "synthesize"]
