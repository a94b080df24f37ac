"""Directories of several plans on the command line: check and run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver import inputs, outputs
from hccc.driver.compiled import LoadedPlans
from hccc.driver.load import load
from hccc.emit.targets import CPU
from hccc.ir import catalogue_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.primitives import Transport
from tests.cli.commandline import Hccc
from tests.emit import catalogues
from tests.emit.catalogues import BORDER

BOTH = catalogues.both()
SHORT = ("-n", "2", "-w", "1")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return catalogues.written(BOTH, tmp_path / "k", (CPU,))


@pytest.mark.slow
def test_check_says_what_holds_of_every_plan(hccc: Hccc, kernels: Path) -> None:
    code, stdout, _ = hccc("check", kernels)
    assert code == 0
    assert stdout.startswith(f"both: Allreduce over 4 ranks (proofs of {kernels / 'plan.json'})")
    lines = [" ".join(line.split()) for line in stdout.splitlines()]
    sizes = [len(plan) for plan in BOTH.plans]
    at = lines.index(f"both_1 deadlock, race, result: {sizes[0]} primitives")
    assert lines[at + 1 : at + 4] == [
        "(mesh.rccl; out of place 0 to 39,999 bytes; in place 0 to 9,999 bytes)",
        f"both_2 deadlock, race, result: {sizes[1]} primitives",
        "(ring.rccl; out of place from 40,000 bytes; in place from 10,000 bytes)",
    ]
    assert f"the text of 1 target does what the plan says: {sum(sizes)} primitives" in stdout


def test_check_of_a_plan_file_as_json(hccc: Hccc, kernels: Path) -> None:
    code, stdout, _ = hccc("check", kernels / "plan.json", "--json")
    found = json.loads(stdout)
    assert code == 0 and found["name"] == "both"
    assert [plan["name"] for plan in found["catalogue"]["plans"]] == ["both_1", "both_2"]
    for plan in found["catalogue"]["plans"]:
        assert [proof["name"] for proof in plan["proofs"]] == ["deadlock", "race", "result"]
    ranges = found["catalogue"]["ranges"]
    assert [(r["in_place"], r["begin"], r["end"], r["plan"]) for r in ranges] == [
        (False, 0, 40000, "both_1"),
        (False, 40000, 160000, "both_2"),
        (False, 160000, None, "both_2"),
        (True, 0, 10000, "both_1"),
        (True, 10000, None, "both_2"),
    ]


def test_a_wrong_plan_is_found_whichever_it_is(hccc: Hccc, kernels: Path) -> None:
    """The first one: not the plan of the largest sizes."""
    wrong = replace(BOTH, plans=(catalogues.unproved(BOTH.plans[0]), BOTH.plans[1]))
    (kernels / "plan.json").write_text(catalogue_json.dumps(wrong))
    code, _, stderr = hccc("check", kernels / "plan.json")
    assert code == 1 and "error[E3" in stderr


def test_kernels_of_any_plan_are_held_against_it(hccc: Hccc, kernels: Path) -> None:
    with (kernels / "both_1_cpu.cpp").open("a") as text:
        text.write("// mine\n")
    code, _, stderr = hccc("check", kernels)
    assert code == 1
    assert f"error[E428]: {kernels / 'both_1_cpu.cpp'} was not made from the plan.json" in stderr
    assert hccc("run", kernels, *SHORT)[0] == 1


def test_what_was_read_is_written_again(kernels: Path, tmp_path: Path) -> None:
    compiled = load(inputs.opened(kernels))
    assert not compiled.catalogue.alone and compiled.plan.name == "both_2"
    assert len(compiled.catalogue_proofs) == 2
    assert compiled.proofs == compiled.catalogue_proofs[1]
    outputs.write(compiled, tmp_path / "again", ["cpu"])
    for name in ("plan.json", "both.h", "both_1_cpu.cpp"):
        assert (tmp_path / "again" / name).read_bytes() == (kernels / name).read_bytes()


def test_no_plan_is_written_unproved(tmp_path: Path) -> None:
    """Whoever made the catalogue."""
    first = BOTH.plans[0]
    wrong = catalogues.unproved(first)
    broken = Catalogue("both", (wrong, BOTH.plans[1]), BOTH.ranges)
    for proofs in ((), ((), ())):
        compiled = LoadedPlans.of(broken, proofs)
        with pytest.raises(UserError, match="E3"):
            outputs.write(compiled, tmp_path / "k", ["cpu"])
        with pytest.raises(UserError, match="E3"):
            api.check(compiled)
    assert not (tmp_path / "k").exists()


def test_a_window_that_one_plan_cannot_have(hccc: Hccc, tmp_path: Path) -> None:
    bounded = catalogues.bounded(BOTH, 3)
    place = catalogues.written(bounded, tmp_path / "k", (CPU,))
    code, _, stderr = hccc("run", place, "--window", "4", *SHORT)
    assert code == 1 and "error[E426]: both_2 can run with --window 1 to 3 only" in stderr


@pytest.mark.slow
def test_run_says_which_plan_each_row_is_of(hccc: Hccc, kernels: Path) -> None:
    sizes = ("-b", "4K", "-e", "256K", "-f", "8")
    code, stdout, stderr = hccc("run", kernels, *sizes, *SHORT)
    assert code == 0, stderr
    assert "# both: Allreduce over 4 ranks, on cpu" in stdout
    assert "# both_1 (mesh.rccl): out of place 0 to 39,999 bytes; in place 0 to 9,999" in stdout
    rows = [line.split() for line in stdout.splitlines() if not line.startswith("#")]
    assert [(row[0], row[-1]) for row in rows] == [
        ("4096", "both_1"),
        ("32768", "both_1/both_2"),
        ("262144", "both_2"),
    ]
    code, stdout, _ = hccc("run", kernels, *sizes, *SHORT, "--json", "-d", "float16,float64")
    found = json.loads(stdout)["results"]
    assert code == 0 and len(found) == 6
    for row in found:
        assert row["out_of_place"]["plan"] == f"both_{1 + (row['size'] >= BORDER)}"
        assert (row["in_place"]["nwrong"], row["out_of_place"]["nwrong"]) == (0, 0)


@pytest.mark.slow
def test_run_over_a_network(hccc: Hccc, tmp_path: Path) -> None:
    apart = catalogues.apart()
    assert {plan.transport for plan in apart.plans} == {Transport.MIXED}
    place = catalogues.written(apart, tmp_path / "k", (CPU,))
    for more in ((), ("--network", "1GB/s,5us")):
        code, stdout, stderr = hccc("run", place, "-b", "4K", "-e", "64K", *SHORT, *more)
        assert code == 0, stderr
        assert "# network: 2 memory domains" in stdout and " 0 OK" in stdout
