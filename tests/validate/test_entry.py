"""Catalogues' headers and dispatchers that pick something else than the catalogue says."""

from __future__ import annotations

import re

import pytest

from hccc.base.diagnostics import UserError
from hccc.driver.outputs import kernels
from hccc.emit import directory
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue, Range
from hccc.ir.micro_batch import GRAIN
from hccc.validate import entry
from hccc.validate.entry import validate_entry
from hccc.validate.validate import validate, validate_present
from hccc.validate.validated import Validated
from tests.emit import catalogues, plans
from tests.emit.catalogues import made, only
from tests.marks import slow
from tests.validate.conftest import CPU, CUDA, HIP, edited

pytestmark = pytest.mark.usefixtures("any_words")
BOTH = catalogues.both()
GATHER = plans.compiled(plans.ring_allgather(5))
APART = made(
    "gather",
    (only(GATHER, False), only(plans.compiled(plans.ring_allgather(5, channels=2)), False)),
    [Range(False, 0, 1, 0, GRAIN), Range(False, 1003, 0, 3, GRAIN)],
)


def emitted(catalogue: Catalogue, *targets: Target) -> dict[str, bytes]:
    texts = {name: text.encode() for name, text in kernels(catalogue, targets).items()}
    return {name: text for name, text in texts.items() if not name.startswith("hccc/")}


def refused(name: str, old: str, new: str, target: Target = CPU) -> str:
    """Returns the error of the files with one edit."""
    with pytest.raises(UserError) as error:
        validate_entry(edited(emitted(BOTH, target), name, old, new), BOTH, target)
    problem = error.value.problem
    assert problem.message.startswith(f"both_{target.name}_dispatch.cpp: ")
    return f"{problem.code} {problem.message}"


@pytest.mark.parametrize("target", [CPU, slow(CUDA), slow(HIP)])
@pytest.mark.parametrize("catalogue", [BOTH, slow(APART)])
def test_what_was_emitted_picks_what_the_catalogue_says(
    catalogue: Catalogue, target: Target
) -> None:
    validate_entry(emitted(catalogue, target), catalogue, target)


DISPATCH = "both_cpu_dispatch.cpp"


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("both.h", "40000LL", "40004LL", "plan: the text says 0, the catalogue 1"),
        slow("both.h", "40000LL", "39999LL", "plan: the text says 1, the catalogue 0"),
        slow("both.h", "{ 1, 0, ", "{ 0, 0, ", "plan: the text says 0, the catalogue 1"),
        slow("both.h", "{ 0, 1, 2, ", "{ 0, 1, 3, ", "window: the text says 3, the catalogue 2"),
        slow("both.h", "32768, ", "8192, ", "(micro-batch|scratch bytes): the text says"),
        slow("both.h", "0, /* scratch */", "1, /* scratch */", "the shapes of plans, row 0"),
        slow("both.h", "4, /* ranks */", "5, /* ranks */", "the shapes of plans, row 0"),
        slow("both.h", "range->plan + 1", "range->plan", "plan_of: the text says 0"),
        slow("both.h", "both_catalogue, 2)", "both_catalogue, 1)", "flag bytes: the text says"),
        slow("both.h", "return 1;", "return 2;", "blocks of buffers, row 0"),
        slow("both.h", "hccc_scratch_of(", "1 + hccc_scratch_of(", "scratch bytes"),
        slow(DISPATCH, "hccc_size_of_int32 = 4", "hccc_size_of_int32 = 2", "called for int32"),
        slow(DISPATCH, "both_1_cpu_##d##_##o, ", "both_2_cpu_##d##_##o, ", "plan: the text says 1"),
        slow(DISPATCH, "&picked.call)", "call)", "micro-batch: the text says"),
        slow(DISPATCH, "(&picked.comm", "(comm", "flags at: the text says 0"),
        slow(DISPATCH, "return bad ? bad : ", "return bad ? 0 : ", "status: the text says 0"),
        slow(DISPATCH, "##_##o(comm, call);", "##_sum(comm, call);", "entries by name"),
        slow(DISPATCH, "HCCC_NOT_BUILT", "HCCC_OK", "entries by name"),
        slow(DISPATCH, "hccc_picked picked;", "hccc_picket picked;", "does not compile"),
    ],
)
def test_an_edit_is_told(name: str, old: str, new: str, told: str) -> None:
    said = refused(name, old, new)
    assert re.search(told, said), said


@pytest.mark.slow
def test_one_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "RUN_S", 1)
    said = refused(DISPATCH, "hccc_picked picked;", "for (;;);  hccc_picked picked;")
    assert said.startswith("E439") and "its end" in said


@pytest.mark.slow
def test_a_library_is_validated_whole() -> None:
    """Kernels of every plan, and their dispatcher."""
    files = emitted(BOTH, CPU, CUDA)
    found = validate_present(files, BOTH)
    assert isinstance(found, Validated) and found.targets == ("cpu", "cuda")
    assert found.primitives == sum(map(len, BOTH.plans))
    wrong = edited(files, "both_2.cu", "hccc_input(b, ", "hccc_output(b, ")
    with pytest.raises(UserError, match=r"E438.*both_2\.cu"):
        validate_present(wrong, BOTH)


@pytest.mark.slow
def test_texts_without_a_header_are_kernels_alone() -> None:
    files = {name: text for name, text in emitted(BOTH, CPU).items() if name != "both.h"}
    validate_entry(files, BOTH, CPU)
    assert set(directory.entries(BOTH, [CPU], [CPU])) == {"both.h", DISPATCH}
    assert validate(files, BOTH, [CPU]).targets == ("cpu",)
