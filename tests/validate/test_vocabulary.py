"""A text has hccc's words and lines alone: with others, compilers and types could differ on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hccc.api import functions as api
from hccc.base.diagnostics import UserError
from hccc.driver.options import Options
from hccc.driver.outputs import kernels
from hccc.emit.kernels import view
from hccc.emit.targets import TARGETS, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.transport import Transport
from hccc.validate import execute, vocabulary
from hccc.validate.validate import validate
from tests.emit import catalogues, plans
from tests.marks import slow
from tests.validate.conftest import CPU, CUDA, TRANSPORTS, emitted

EXAMPLES = Path(__file__).parents[2] / "examples"
ALGORITHMS = sorted([*EXAMPLES.glob("*.rccl"), *EXAMPLES.glob("msccl/*.xml")])
RING = plans.compiled(plans.ring_allreduce(8))
NAME = RING.name
FIRST = '#include "hccc/device.h"\n'
CHUNK = re.compile(r"(const int chunk0 = )(.*?);")


def checked(library: Catalogue) -> Iterator[str]:
    """Checks every file with code of a library's directory; yields their names."""
    files = kernels(library, TARGETS)
    for target in TARGETS:
        for own in dict.fromkeys([library.name, *(plan.name for plan in library.plans)]):
            names = (f"{own}{target.suffix}", f"{own}.h", f"{own}_{target.name}_dispatch.cpp")
            for name in files.keys() & names:
                vocabulary.check(name, files[name].encode(), own, target)
                yield name


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(
    "path",
    [slow(p) if k % 4 else p for k, p in enumerate(ALGORITHMS)],
    ids=lambda p: p.stem if isinstance(p, Path) else "",
)
def test_all_that_is_written(path: Path, rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example, as functions and as rows."""
    if rows:
        monkeypatch.setattr(view, "MOST_CALLS", 0)
    for transport in TRANSPORTS if path.suffix == ".rccl" else (Transport.AUTO,):
        made = api.compile(path, Options(transport=transport, prove=False, tune="off"))
        assert len(set(checked(made.catalogue))) == 7  # kernels, dispatchers, the header


def test_a_library_of_several_plans() -> None:
    assert len(set(checked(catalogues.both()))) == 10


def refused(text: str, target: Target = CPU, name: str = "") -> str:
    """Returns the error of a text, of which nothing is compiled."""
    name = name or f"{NAME}{target.suffix}"
    with pytest.raises(UserError) as error:
        validate({**emitted(RING, target), name: text.encode()}, Catalogue.of(RING), [target])
    assert error.value.problem.code == "E439"
    return error.value.problem.message


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "compile_unit", lambda *_: pytest.fail("is compiled"))


def conditional(condition: str, text: str, *, before: bool = False) -> str:
    """Returns a text that moves another chunk where a condition holds."""
    head = f"#if {condition}\n#define EVIL 1\n#else\n#define EVIL 0\n#endif\n"
    text = text.replace(FIRST, head + FIRST if before else FIRST + head, 1)
    return CHUNK.sub(r"\1(\2 + EVIL) % 8;", text, count=1)


@pytest.mark.parametrize(
    "condition",
    [
        *("1", "__OPTIMIZE__", "defined(__AVX2__)", "defined(__PIC__)", "defined(HCCC_TRACE)"),
        *("__INCLUDE_LEVEL__ == 0", '!__has_include("recording-unit.cpp")', "defined(HCCC_EDGE)"),
        *("!defined(HCCC_OPERAND_KINDS)", "defined(__EXCEPTIONS)", "defined(_REENTRANT)"),
        *("defined(__clang__)", "defined(__CUDA_ARCH__)", "defined(__CUDACC_VER_MAJOR__)"),
    ],
)
@pytest.mark.parametrize("target", [CPU, CUDA])
def test_no_text_asks_what_compiles_it(condition: str, target: Target) -> None:
    text = emitted(RING, target)[f"{NAME}{target.suffix}"].decode()
    for before in (False, True):
        said = refused(conditional(condition, text, before=before), target)
        assert "hccc does not write `#if " in said


def text() -> str:
    return emitted(RING, CPU)[f"{NAME}_cpu.cpp"].decode()


def test_no_text_asks_for_its_type() -> None:
    pasted = "#define IS_float64 1\n#define PASTE_(a, b) a##b\n#define PASTE(a, b) PASTE_(a, b)\n"
    edited = conditional("PASTE(IS_, HCCC_DTYPE)", text()).replace(FIRST, FIRST + pasted)
    assert "`#define IS_float64 1`" in refused(edited)


PROGRAM = "HCCC_FN void hccc_program(hccc_block& b) {\n"
SWITCH = PROGRAM + "  switch (b.tb) {\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FIRST, FIRST + "#define HCCC_OPERANDS 2\n"),  # the real header has its own by then
        (FIRST, "#define HCCC_RANKS 8\n" + FIRST),
        (FIRST, FIRST + FIRST),
        (FIRST, FIRST + "%:define X 1\n"),
        (FIRST, FIRST + "#include <sched.h>\n"),
        (FIRST, FIRST + "// a comment \\\n#define HCCC_NETWORK 1\n"),
        (FIRST, FIRST + "// a comment ??/\n"),
        (FIRST, FIRST + "/* half a comment\n"),
        (FIRST, FIRST + "static int count;\n"),
        (FIRST, FIRST + "static const int hccc_table9[1] = {__LINE__};\n"),
        (SWITCH, PROGRAM + "  static int n = 0;\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, PROGRAM + "  int x0;\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, PROGRAM + "  const int x0 = x0;\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, PROGRAM + "  if (b.channel) return;\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, PROGRAM + "  asm(0);\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, PROGRAM + "  hccc_record_block(0, 0);\n" + SWITCH.removeprefix(PROGRAM)),
        (SWITCH, 'extern "C" int open(const char*, int, ...) { return 0; }\n' + SWITCH),
        (SWITCH, "__attribute__((constructor)) static void f() {}\n" + SWITCH),
        (SWITCH, "HCCC_FN int prctl(int rank) {\n  return rank;\n}\n" + SWITCH),
        (SWITCH, "\r" + SWITCH),
        (SWITCH, "\0" + SWITCH),
        ("return hccc_cpu_launch(comm, call);", "return call->count ? 0 : 1;"),
    ],
)
def test_what_hccc_does_not_write(old: str, new: str) -> None:
    before = text()
    assert old in before
    assert "hccc does not write `" in refused(before.replace(old, new, 1))


def test_the_header_and_the_dispatcher() -> None:
    for name in (f"{NAME}.h", f"{NAME}_cpu_dispatch.cpp"):
        body = emitted(RING, CPU)[name].decode()
        for more in ("#include <sched.h>\n", "int system(const char*);\n", "static int n;\n"):
            told = refused(body + more, CPU, name)
            assert told.startswith(f"{name}:{body.count(chr(10)) + 1}: hccc does not write `")


def test_what_is_no_text() -> None:
    with pytest.raises(UserError, match=r"E439.*is no text"):
        vocabulary.check(f"{NAME}_cpu.cpp", b"\xff", NAME, CPU)


@pytest.mark.parametrize(
    "line",
    [
        '#define HCCC_REDUCTIONS HCCC_OWN(x, "f", system(a))',
        '#define HCCC_REDUCTIONS HCCC_OWN(x, "f", t::add(a, b)) int n;',
        '#define HCCC_REDUCTIONS HCCC_OWN(x, "f", t::add(a, rank))',
        '#define HCCC_REDUCTIONS HCCC_OWN(x, "f", u::add(a, b))',
        '#define HCCC_REDUCTIONS HCCC_OWN(x, "f", a = b)',
    ],
)
def test_reductions_of_ones_own_have_their_own_words(line: str) -> None:
    good = '#define HCCC_REDUCTIONS HCCC_OWN(x, "iuf", t::add(t::number(2LL), t::number(1e-07)))'
    vocabulary.check("x.cu", good.encode(), "x", CUDA)
    with pytest.raises(UserError, match="hccc does not write"):
        vocabulary.check("x.cu", line.encode(), "x", CUDA)
