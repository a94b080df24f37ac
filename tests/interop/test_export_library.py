"""A library of several plans as MSCCL XML: a runtime takes the plan that the library would."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver import outputs
from hccc.driver.compiled import CompiledProgram
from hccc.driver.options import Options
from hccc.interop import export_library as export_library_module
from hccc.interop.export_library import export_library
from hccc.interop.export_msccl import XmlOptions
from hccc.interop.import_msccl import import_msccl
from hccc.ir.transport import Transport
from hccc.lang.cluster.load import load
from hccc.lang.transfer import load as transfer
from hccc.proofs.prove import check_plan

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def library() -> CompiledProgram:
    """Compiles two algorithms, each the faster at some sizes."""
    sources = [
        Source(f"{name}.rccl", (EXAMPLES / f"{name}.rccl").read_text(encoding="utf-8"))
        for name in ("ring_allreduce", "rhd_allreduce")
    ]
    options = Options(transport=Transport.STAGED, allocator="connection")
    site = load(EXAMPLES / "clusters" / "dgx-h100.cluster")
    made = driver.compile_library(sources, options, site)
    assert len(made.catalogue.plans) > 1
    return made


@cache
def windows(dialect: str, in_place: bool) -> dict[str, tuple[int, int]]:
    """Returns minBytes and maxBytes of each file."""
    options = XmlOptions(dialect, in_place=in_place)
    found = {}
    for name, text in export_library(library().catalogue, options).items():
        least, most = re.findall(r'm(?:in|ax)Bytes="(\d+)"', text.splitlines()[0])
        found[name] = int(least), int(most)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
@settings(deadline=None)
@given(size=st.one_of(st.integers(0, 1 << 20), st.integers(0, 1 << 39)))
def test_a_runtime_takes_what_the_library_would(in_place: bool, size: int) -> None:
    """Both runtimes' rules: up to maxBytes, 0 being none, and below maxBytes."""
    catalogue = library().catalogue
    assert catalogue
    wanted = catalogue.plans[catalogue.pick(size, in_place).plan].name
    executor = windows("executor", in_place).items()
    msccl = windows("msccl", in_place).items()
    for taken in (
        [name for name, (least, most) in executor if least <= size and (size <= most or not most)],
        [name for name, (least, most) in msccl if least <= size < most],
    ):
        assert len(taken) == 1 and re.fullmatch(rf"{wanted}(_\d)?\.xml", taken[0])


@pytest.mark.slow
def test_files_of_both_kinds_follow_each_other_without_a_gap() -> None:
    """Each kind has files of its own, and each size one of them."""
    catalogue = library().catalogue
    names = set(export_library(catalogue, XmlOptions(in_place=None)))
    for in_place, kind in ((False, "out_of_place"), (True, "in_place")):
        sizes = sorted(windows("executor", in_place).values())
        assert [least for least, _ in sizes[1:]] == [most + 1 for _, most in sizes[:-1]]
        assert sizes[0][0] == 0 and sizes[-1][1] == 0  # 0: without an end
        own = {f"{name.removesuffix('.xml')}_{kind}.xml" for name in windows("executor", in_place)}
        assert own <= names
        names -= own
    assert not names


@pytest.mark.slow
def test_every_file_is_a_plan_that_does_the_same() -> None:
    for name, text in export_library(library().catalogue, XmlOptions(in_place=None)).items():
        plan, _ = import_msccl(Source(name, text))
        assert check_plan(plan)
        assert plan.modes == ((False,) if "out_of_place" in name else (True,))


@pytest.mark.slow
def test_files_that_are_no_longer_written_go(tmp_path: Path) -> None:
    place = tmp_path / "xml"
    names = outputs.write_xml(library(), place, XmlOptions())
    (place / "allreduce_9.xml").write_text("<algo/>")
    (place / "other.xml").write_text("<algo/>")
    assert outputs.write_xml(library(), place, XmlOptions()) == names
    assert {path.name for path in place.iterdir()} == {*names, "other.xml"}


def test_one_plan_is_one_file(tmp_path: Path) -> None:
    made = driver.compile_text(
        transfer.read(EXAMPLES / "ring_allreduce.rccl"), Options(transport=Transport.STAGED)
    )
    assert outputs.write_xml(made, tmp_path, XmlOptions()) == ["ring_allreduce.xml"]


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as caught:
        outputs.write_xml(library(), tmp_path / "file", XmlOptions())
    assert caught.value.problem.code == "E431"


def test_a_plan_that_carries_but_its_smallest_size_has_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalogue = library().catalogue
    for less in (0, 1):
        monkeypatch.setattr(
            export_library_module, "largest_message", lambda _, o, less=less: o.min_bytes - less
        )
        made = export_library(catalogue, XmlOptions("executor", in_place=True))
        assert bool(made) is not bool(less)
