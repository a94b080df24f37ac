"""limits: the most that a directory of kernels from somebody else can cost.

Such a directory is read, never executed: what is compiled and run is what hccc itself emits from
the plan in it. A plan can still be large, and its text slow to compile.
"""

from __future__ import annotations

# Of plan.json; 1,024 ranks and 2 million transfers need a third of it. Its JSON may be nested as
# deep as Python's reader goes. Of others one byte more is read than hccc would write there.
PLAN_BYTES = 1 << 28
DIRECTORY_ENTRIES = 4096  # looked at in a folder, of which there are two: hccc writes some hundred

COMPILE_S = 600  # of one compiler
COMPILE_BYTES = 4 << 30  # of its address space; an Alltoall of 256 ranks takes less than an eighth
COMPILERS = 3  # at a time, one for each target
RUN_S = 20  # of a text that is validated, and what its primitives take
RUN_BYTES = 1 << 28  # of its data; it can start no process and open no file
