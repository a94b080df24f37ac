"""prebuilt: the standard collectives that a platform wheel brings, built for processors of a kind.

`runtime/communicator/standard.cpp` finds them by their names. A library has all types and
reductions of one collective, so it is loaded once; where roots are not alike there is one for each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from hccc.base.building.build import prebuild_pieces
from hccc.base.building.prebuilt import MARCH
from hccc.base.dtypes import OPS, reduces
from hccc.base.progress import tell
from hccc.driver.assumed import usual_hosts
from hccc.ir.collective import REDUCING, ROOTED, OpType, collective_named
from hccc.runtime.communicator.kernels import built
from hccc.runtime.communicator.runtime_library import LINK, PIECES
from hccc.runtime.device.device_layer import DEVICE
from hccc.runtime.device.device_layer import LINK as DEVICE_LINK
from hccc.runtime.nccl import library as nccl
from hccc.standard.libraries import kernels

RANKS = range(1, 9)
COLLECTIVES = (
    *("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "gather"),
    "scatter",
)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8")
FOLDER = "standard"
NEWER = "x86-64-v3"  # most processors since 2013: vectors of 32 bytes, conversions of float16
_EVERY_ROOT = frozenset({OpType.GATHER, OpType.SCATTER})


def prebuild(
    place: Path,
    ranks: Sequence[int] = RANKS,
    collectives: Sequence[str] = COLLECTIVES,
    dtypes: Sequence[str] = DTYPES,
) -> Iterator[Path]:
    """Builds what a wheel brings, and yields each file in `place` when it is there: the libraries
    of communicators, of streams and of NCCL's functions, then standard collectives with all
    reductions.

    Raises:
        UserError: E412 to E414 something cannot be built.
    """
    (place / FOLDER / NEWER).mkdir(parents=True)
    tell("Building the libraries of communicators")
    yield prebuild_pieces(place, PIECES, LINK)
    yield prebuild_pieces(place, [DEVICE], DEVICE_LINK)
    for named in nccl.NAMES:
        yield prebuild_pieces(place, [nccl.PIECE], nccl.link(named))
    reductions = [op for op in OPS if any(reduces(dtype, op) for dtype in dtypes)]
    every = [
        (op, n, root)
        for op, n in product(map(collective_named, collectives), ranks)
        for root in (range(n) if op in _EVERY_ROOT else (0,))
    ]
    for number, (op, n, root) in enumerate(every, 1):
        made = kernels(op, usual_hosts([n]), root)
        name = f"{n}-{op.value.lower()}{f'-{root}' if op in ROOTED else ''}.so"
        for march in (MARCH, NEWER) if op in REDUCING else (MARCH,):
            tell(f"Building {name} for {march}, collective {number} of {len(every)}")
            library = built(made, dtypes, reductions, march=march)
            folder = place / FOLDER / (NEWER if march == NEWER else "")
            yield Path(shutil.copyfile(library, folder / name))
