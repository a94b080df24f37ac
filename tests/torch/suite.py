"""PyTorch's own tests of backends, which its wheel brings, in processes that live on.

`python -m tests.torch.suite BACKEND FOLDER` in every rank's process: each test has a process group
of its own, and rank 0 prints `ok`, `skipped` or `failed`, and its name.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import unittest
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from hccc.runtime.torch.installed import torch

dist = torch.distributed
utilities = importlib.import_module("torch.testing._internal.common_utils")
_TESTS = "torch.testing._internal.distributed.distributed_test"
NAMED = "accumulate_gradients"  # these tests know what to do for a backend by its name only
TEST_S, END_S = 60, 30
# Not run: what only backends of PyTorch's own have, or needs torchvision or a second rendezvous.
LEFT_OUT = (
    *("has_finalized", "monitored_barrier", "barrier_timeout"),
    "test_SyncBatchNorm_process_group",
)


def _cases(backend: str) -> Any:
    """Returns the class of all tests."""
    torch.set_num_threads(1)
    common = importlib.import_module("torch.testing._internal.common_distributed")
    if backend == "hccc":
        importlib.import_module("hccc.torch")
        for feature in ("ddp", "subgroup", "plugin"):
            common.DistTestCases.backend_feature[feature].add(backend)
    found: Any = importlib.import_module(_TESTS)

    class Suite(found.TestDistBackend, found.DistributedTest._DistTestBase):
        world_size = property(lambda _: os.environ["WORLD_SIZE"])

    return Suite


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def end(*_: Any) -> None:
        raise TimeoutError(f"not done in {seconds} s")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _outcome(suite: Any, name: str, backend: str, folder: Path, skips: Any) -> str:
    """Runs a test in this rank: `ok`, `skipped` or `failed` and why."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    try:
        with _within(TEST_S):
            dist.init_process_group(
                backend,
                init_method=f"file://{folder}/init_dir/{name}",
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=TEST_S / 2),
            )
            utilities.set_rng_seed(1)
            tests: Any = sys.modules[_TESTS]
            tests.BACKEND = "gloo" if NAMED in name else backend
            case = suite(name)
            case.rank, case.file_name = rank, f"{folder}/test_dir/{name}"
            dist.barrier()
            getattr(case, name)()
        found = "ok"
    except unittest.SkipTest:
        found = "skipped"
    except SystemExit as error:
        found = "skipped" if error.code in skips else f"failed exit {error.code}"
    except BaseException as error:
        found = f"failed {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    with suppress(Exception), _within(END_S):
        dist.destroy_process_group()
    return found


def main(backend: str, folder: Path, names: Sequence[str]) -> None:
    """Runs tests in this rank, and prints what became of them; without names, all."""
    for part in ("barrier", "test_dir", "init_dir"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    os.environ.update(TEMP_DIR=str(folder), BACKEND=backend)
    suite = _cases(backend)
    common = importlib.import_module("torch.testing._internal.common_distributed")
    tests = importlib.import_module(_TESTS)
    skips = {one.exit_code for one in common.TEST_SKIPS.values()}
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)
    for name in names or sorted(name for name in dir(suite) if name.startswith("test_")):
        if any(word in name for word in LEFT_OUT):
            continue
        tests.Barrier.barrier_id = 0
        if rank == 0:
            for path in (folder / "barrier").iterdir():
                path.unlink()
        _meet(store, f"begin {name}", size, rank)
        store.set(f"{name}/{rank}", _outcome(suite, name, backend, folder, skips))
        found = [store.get(f"{name}/{r}").decode() for r in range(size)]
        worst = next((one for one in found if one.startswith("failed")), found[0])
        if rank == 0:
            outcome, _, why = worst.partition(" ")
            print(f"RESULT {outcome} {name} {why}", flush=True)
    store.set(f"end/{rank}", "")
    if rank == 0:  # the store's process ends last
        store.wait([f"end/{r}" for r in range(size)])


def _meet(store: Any, name: str, size: int, rank: int) -> None:
    store.set(f"{name}/{rank}", "")
    store.wait([f"{name}/{r}" for r in range(size)])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
