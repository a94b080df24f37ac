"""hccc.testing: public helpers for tests of collective algorithms.

- `correct_programs`, `wrong_programs`, `mutants`, `options`, `plans`, `collectives`,
  `topologies`, `cluster_texts`: hypothesis strategies (`strategies`, `clusters`);
- `is_correct`, `run`, `expected`, `exact_inputs`: the meaning of a program, in plain NumPy
  (`reference`);
- `execute`, `launch`, `replay`, `Hang`, `Poison`, `Overrun`: a Plan run in any interleaving of its
  thread blocks, or in a given one, with the lengths of a call of any count (`stepwise`);
- `assert_correct`: explains the fault of a wrong program.

Needs hypothesis (`pip install hccc[test]`).
"""

from hccc.testing.assertions import assert_correct, text
from hccc.testing.clusters import texts as cluster_texts
from hccc.testing.clusters import topologies
from hccc.testing.mutate import MUTATIONS, Mutant
from hccc.testing.reference import REDUCE_OPS, exact_inputs, expected, is_correct, run
from hccc.testing.step_machine import Hang, Overrun, Poison
from hccc.testing.stepwise import execute, launch, replay
from hccc.testing.strategies import (
    collectives,
    correct_programs,
    mutants,
    options,
    plans,
    wrong_programs,
)

__all__ = [
    "MUTATIONS",
    "REDUCE_OPS",
    "Hang",
    "Mutant",
    "Overrun",
    "Poison",
    "assert_correct",
    "cluster_texts",
    "collectives",
    "correct_programs",
    "exact_inputs",
    "execute",
    "expected",
    "is_correct",
    "launch",
    "mutants",
    "options",
    "plans",
    "replay",
    "run",
    "text",
    "topologies",
    "wrong_programs",
]
