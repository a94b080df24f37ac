"""Waits of a kernel deleted, one by one: flags, messages, credits. Each deletion is reported.

Slots in memory, slots over a network, and network puts. A kernel is built once; it is told at run
time which of its waits to leave out. What is then wrong is a race that ThreadSanitizer sees, a
wrong result, or both.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer
from hccc.ir.transport import Transport
from tests.emit import plans
from tests.marks import some
from tests.testing.test_tsan import sanitized

FLAG, MESSAGE, CREDIT = 1, 2, 3  # hccc_wait_kind
ASKED = "if (!ok || wish.kind == HCCC_WAIT_NONE) continue;"
DELETED = """
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

// Whether the environment deletes this wait: rank, thread block, primitive, kind, flag.
static bool hccc_deleted(const hccc_block& b, int prim, int kind, int flag) {
  static const char* const said = getenv("HCCC_DELETED");
  char wait[80];
  snprintf(wait, sizeof wait, "%d %d %d %d %d", b.rank, b.tb, prim, kind, flag);
  return said && !strcmp(said, wait);
}

// Waits, in thread i"""
RUNS = 40  # a deleted credit shows in one run of three: the receiver is often fast enough
KINDS = {
    "memory": (Options(transport=Transport.STAGED, slots=1), (MESSAGE, CREDIT)),
    "network": (Options(network_lowering="slots", slots=1, fuse="none"), (FLAG, MESSAGE, CREDIT)),
    "put": (Options(network_lowering="put", fuse="none"), (FLAG,)),
}


def deleting(folder: Path) -> None:
    """Lets a kernel leave waits out."""
    header = folder / "hccc" / "primitive.h"
    text = header.read_text()
    assert text.count(ASKED) == text.count("\n// Waits, in thread i") == 1
    asked = ASKED.replace(
        "continue", "continue;\n    if (hccc_deleted(b, p.prim, wish.kind, wish.flag)) continue"
    )
    header.write_text(text.replace(ASKED, asked).replace("\n// Waits, in thread i", DELETED))


def waits(plan: Plan) -> Iterator[tuple[int, ...]]:
    """Yields every wait of a plan: rank, thread block, primitive, kind, flag."""
    rank, block = plan.rank_of(), plan.block_of()
    tb = block - (np.cumsum(plan.n_tb) - plan.n_tb)[rank]
    prim = np.arange(len(plan)) - plan.tb_ptr[block]
    q = plan.queues
    sides = ((plan.src, MESSAGE, q.data_flag), (plan.dst, CREDIT, q.credit_flag))
    rows: list[tuple[NDArray[Any], ...]] = [
        (plan.waits.owner(), np.full(len(plan.waits.index), FLAG), plan.waits.index)
    ]
    for operands, kind, flags in sides:
        at = np.flatnonzero(operands.buffer == Buffer.QUEUE)
        raised = flags[operands.rank[at]]
        rows.append((operands.owner()[at], np.full(len(at), kind), raised))
    for owner, kinds, flag in rows:
        for i, k, f in zip(owner.tolist(), kinds.tolist(), flag.tolist(), strict=True):
            yield int(rank[i]), int(tb[i]), int(prim[i]), k, f


@pytest.mark.slow
@pytest.mark.parametrize("slots", KINDS)
def test_every_deleted_wait_is_told(slots: str, tmp_path: Path) -> None:
    options, kinds = KINDS[slots]
    plan = driver.compile_program(plans.hierarchical_mesh(2, 2), options).plan
    found = list(waits(plan))
    assert {kind for *_, kind, _ in found} >= set(kinds)
    done = sanitized(plan, tmp_path, late=True, edit=deleting)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[:3000]
    survivors = [wait for wait in some(found, 2) if not told(tmp_path / "kernels", wait)]
    assert not survivors, f"{len(survivors)} of {len(found)}"


def told(folder: Path, wait: tuple[int, ...]) -> bool:
    """Tells whether the sanitizer reports the kernel without a wait, in one of RUNS runs."""
    environment = os.environ | {"HCCC_DELETED": " ".join(map(str, wait))}
    environment |= {"TSAN_OPTIONS": "exitcode=66 halt_on_error=1"}
    for _ in range(RUNS):
        done = subprocess.run(
            ["./program"], cwd=folder, capture_output=True, text=True, timeout=200, env=environment
        )
        if done.returncode:
            return True
    return False
