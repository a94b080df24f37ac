"""Structures that are tried: passes that are given the same run once, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hccc.driver import pass_manager
from hccc.driver.assumed import common_cluster
from hccc.driver.compilation import compile_text
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.driver.pass_manager import PassRunner, watching
from hccc.ir import plan_json
from hccc.lang.transfer import load as transfer

PROGRAM = Path(__file__).parents[2] / "examples" / "ring_allreduce.rccl"


def compiled(shown: list[str] | None = None) -> CompiledProgram:
    with watching(
        None if shown is None else lambda name, ir: shown.append(f"{name} {len(str(ir))}")
    ):
        return compile_text(transfer.read(PROGRAM), Options(sizes="1K..1M"), common_cluster)


def test_no_order_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Counter[str] = Counter()
    shown: list[str] = []
    for name, scheduler in pass_manager.SCHEDULERS.items():

        def counted(dag: object, name: str = name, scheduler: object = scheduler) -> object:
            runs[name] += 1
            return scheduler(dag)  # type: ignore[operator]

        monkeypatch.setitem(pass_manager.SCHEDULERS, name, counted)
    compiled(shown)
    assert runs == {"hpds": 1, "list": 1}
    assert sum(line.startswith("schedule ") for line in shown) > 2


@pytest.mark.slow
def test_it_gives_what_running_every_pass_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: tuple[list[str], list[str]] = ([], [])
    once = compiled(shown[0])
    monkeypatch.setattr(PassRunner, "remember", lambda runner: None)
    again = compiled(shown[1])
    assert shown[0] == shown[1]
    assert plan_json.dumps(once.plan) == plan_json.dumps(again.plan)
    assert once.tuned is not None and again.tuned is not None
    assert once.tuned.names == again.tuned.names
    assert once.tuned.times.tobytes() == again.tuned.times.tobytes()
    assert once.tuned.instances == again.tuned.instances
