"""Programs compiled for one size, as `hccc synth` compiles its candidates."""

from __future__ import annotations

from hccc.driver import compilation as driver
from hccc.driver.compiled import Compiled
from hccc.driver.options import Options
from hccc.ir.program import Program
from hccc.ir.topology import Topology
from hccc.passes.verify import verify


def compile_candidate(program: Program, t: Topology, size: int) -> tuple[Compiled, float]:
    """Compiles a Program for calls of `size` bytes; returns it and the µs of a call."""
    made = driver.compile_program(
        verify(program), Options(prove=False, sizes=str(max(1, size)), plans=1), t
    )
    assert made.tuned is not None
    return made, float(made.tuned.times[int(not made.plan.out_of_place)].min())
