"""What the race proof accepts shows no race when its CPU kernel runs under ThreadSanitizer.

Every thread block is an OS thread then, and several launches run back to back, in and out of
place, with all windows. A plan with a wait deleted shows one.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from hccc import driver
from hccc.emit import directory
from hccc.emit.targets import TARGETS
from hccc.ir import plan_json
from hccc.ir.collective import PROGRAMMABLE, Collective, block_count
from hccc.ir.plan import Plan
from hccc.ir.transport import PURE
from hccc.options import Options
from hccc.testing.grow import grow
from hccc.testing.sabotage import without_wait

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COUNT = 600
MAIN = """
#include "{source}"
#include <stdio.h>
#include <stdlib.h>
static const int at[{ranks}][2][2] = {{{table}}};
int main() {{
  hccc_rank ranks[{ranks}];
  hccc_call call{{}};
  call.count = {count};
  call.n_local = {ranks};
  call.micro_batch_bytes = 256;
  for (int place = 0; place < 2; ++place) {{
    if (!({serves} >> place & 1)) continue;
    for (int r = 0; r < {ranks}; ++r) {{
      hccc_T* slab = static_cast<hccc_T*>(calloc({slab}, sizeof(hccc_T)));
      ranks[r].input = slab + at[r][place][0];
      ranks[r].output = slab + at[r][place][1];
      ranks[r].scratch = calloc({scratch}, 1);
      const long long bytes = hccc_flag_bytes(hccc_this_shape);
      ranks[r].flags = aligned_alloc(HCCC_FLAG_STRIDE, bytes);
      for (long long i = 0; i < bytes; ++i) static_cast<char*>(ranks[r].flags)[i] = 0;
    }}
    call.in_place = place;
    for (int launch = 0; launch < 4; ++launch) {{
      hccc_fault fault;
      call.window = {window} ? {window} : launch % 3;
      if (hccc_cpu_launch(ranks, &call, &fault) != HCCC_OK) return 2;
    }}
  }}
  puts("done");
  return 0;
}}
"""


def main_of(plan: Plan, source: str) -> str:
    """A program that launches the kernel on memory laid out as callers lay it out."""
    c, rows = plan.collective, []
    for rank in range(c.n_ranks):
        shift = c.alias_offset(rank) // c.chunks_per_block * COUNT
        if not (c.input_blocks(rank) and c.output_blocks(rank)):
            shift = 0
        away = c.n_ranks * COUNT
        rows.append(f"{{{{{away}, 0}}, {{{max(shift, 0)}, {max(-shift, 0)}}}}}")
    return MAIN.format(
        source=source, ranks=c.n_ranks, table=", ".join(rows), count=COUNT,
        slab=2 * c.n_ranks * COUNT, scratch=1 << 20, window=plan.max_window,
        serves=plan.out_of_place + 2 * plan.in_place,
    )  # fmt: skip


def sanitized(plan: Plan, into: Path) -> subprocess.CompletedProcess[str]:
    """Builds the plan's kernel with ThreadSanitizer and runs it."""
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("g++ is not installed")
    cpu = [target for target in TARGETS if target.name == "cpu"]
    directory.write(into / "kernels", directory.files(plan, cpu, plan_json.dumps(plan)))
    source = f"{plan.name}{cpu[0].suffix}"
    (into / "kernels" / "main.cpp").write_text(main_of(plan, source))
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread", "-DHCCC_DTYPE=int32"]
    subprocess.run(
        [compiler, *flags, "main.cpp", "-o", "program"], cwd=into / "kernels", check=True,
        capture_output=True, timeout=200,
    )  # fmt: skip
    return subprocess.run(
        ["./program"], cwd=into / "kernels", capture_output=True, text=True, timeout=200,
        env=os.environ | {"TSAN_OPTIONS": "exitcode=66"},
    )  # fmt: skip


def assert_no_race(plan: Plan, into: Path) -> None:
    done = sanitized(plan, into)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]


def random_plan(seed: int) -> Plan:
    """A random program of a random collective, compiled in a random way."""
    dice = random.Random(seed)
    op, n = dice.choice(PROGRAMMABLE), dice.randint(2, 4)
    c = Collective(op, n, block_count(op, n) * dice.randint(1, 2), 0)
    program = grow(
        c, lambda bound: dice.randint(0, bound) if bound > 0 else 0,
        gpus_per_node=n, nics_per_node=n, channels=dice.randint(1, 2),
    )  # fmt: skip
    options = Options(
        fuse=dice.choice(["none", "reduce", "full"]),
        transport=dice.choice(list(PURE)),
        allocator=dice.choice(["state", "connection"]),
        max_blocks=dice.choice([None, 1, 2]),
        slots=dice.choice([1, 2, 8]),
    )
    return driver.compile_program(program, options).plan


@pytest.mark.parametrize("name", ["ring_allreduce", "rhd_allreduce", "direct_alltoall"])
def test_examples_have_no_race(name: str, tmp_path: Path) -> None:
    plan = driver.compile_file(EXAMPLES / f"{name}.rccl", Options()).plan
    assert_no_race(plan, tmp_path)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60))]
)
def test_random_plans_have_no_race(seed: int, tmp_path: Path) -> None:
    assert_no_race(random_plan(seed), tmp_path)


def test_a_missing_wait_is_a_race(tmp_path: Path) -> None:
    plan = driver.compile_file(EXAMPLES / "ring_allreduce.rccl", Options(fuse="none")).plan
    done = sanitized(without_wait(plan, 3), tmp_path)
    assert "data race" in done.stderr
