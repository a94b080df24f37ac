"""Texts that do something else than their plan says, and the errors about them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hccc.base.diagnostics import UserError
from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.ir.transport import Transport
from hccc.validate import execute
from hccc.validate.validate import validate
from hccc.validate.validated import Validated
from tests.emit import plans
from tests.validate.conftest import CPU, CUDA, HIP, TRANSPORTS, edited, emitted

pytestmark = pytest.mark.usefixtures("any_words")
DIRECT, STAGED = TRANSPORTS[:2]
RING = plans.compiled(plans.ring_allreduce(8, channels=2))
QUEUES = plans.compiled(plans.ring_allreduce(4), transport=STAGED)
STAR = plans.compiled(plans.broadcast(4))
PROGRAM = "HCCC_FN void hccc_program(hccc_block& b) {\n"
WINDOWS = "  HCCC_WINDOWS(b) {\n"
TEXT = RING.name + ".cu"


def refused(plan: Plan, name: str, old: str, new: str, target: Target = CUDA) -> str:
    """Returns the error of the text with one edit."""
    with pytest.raises(UserError) as error:
        validate(edited(emitted(plan), name, old, new), Catalogue.of(plan), [target])
    problem = error.value.problem
    assert problem.message.startswith(f"{plan.name}{target.suffix}: ")
    return f"{problem.code} {problem.message}"


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hccc_waits(i)", "hccc_waits(0)", "wait 0: the text says flag 0, the plan flag 1"),
        ("hccc_waits(i)", "hccc_waits()", "number of waits: the text says 0, the plan 1"),
        ("hccc_prim<HCCC_REDUCE>", "hccc_prim<HCCC_COPY>", "mode: the text says copy, the plan re"),
        ("hccc_input(b, rank", "hccc_output(b, rank", "the text says hccc_output of rank 0, slot"),
        ("hccc_posts(hccc_post(", "hccc_posts(hccc_post(3 - ", "post 0: the text says flag"),
        ("#define HCCC_FLAGS 1", "#define HCCC_FLAGS 2", "flags: the text says 2., the plan 1."),
        ("#define HCCC_THREADS ", "#define HCCC_THREADS 1", "threads: the text says"),
        (
            "#define HCCC_INLINE ",
            "#define HCCC_ACCUMULATE 64\n#define HCCC_INLINE ",
            "accumulate: the text says 64, the plan 32",
        ),
        ("return 2;", "return 1;", "rank 0: neighbours: the text says"),
        ("return 2;", "return 3;", "rank 0: neighbours: the text says"),
        ("i < ", "i <= ", "the text has"),
        ("(comm, call, stream);", "(comm, 0, stream);", "the entry: the text says"),
        ("(comm, call, stream);", "(0, call, stream);", "passed on 0"),
        ("(comm, call, stream);", "(comm, call, 0);", "passed on 0"),
        (PROGRAM, PROGRAM + "  if (b.rank == 3) return;\n", "the plan has it, the text has not"),
        (PROGRAM, PROGRAM + "  if (b.channel) return;\n", "channel 1: does not repeat"),
        (WINDOWS, "  static int n = 0; if (n++) return;\n" + WINDOWS, "does not repeat"),
        (WINDOWS, WINDOWS + "  static int n = 0; if (n++) return;\n", "leaves the loop|does not"),
        (WINDOWS, WINDOWS + "  return;\n", "leaves the loop|the plan has it"),
        (WINDOWS, "  HCCC_WINDOWS(b) {}\n" + WINDOWS, "loops over the windows a second time"),
        (WINDOWS, "  {\n", "has a primitive outside the loop|the plan has it"),
    ],
)
def test_an_edit_is_told(old: str, new: str, told: str) -> None:
    said = refused(RING, TEXT, old, new)
    assert said.startswith("E438") and re.search(told, said), said


def test_another_memory_domain_is_told() -> None:
    plan = plans.compiled(plans.hierarchical_mesh(2, 2), transport=Transport.AUTO)
    said = refused(plan, f"{plan.name}.cu", "return node;", "return 1 - node;")
    assert said.startswith("E438") and "memory domain" in said


@pytest.mark.slow
@pytest.mark.parametrize("function", ["hccc_recv", "hccc_send"])
def test_every_number_of_a_message(function: str) -> None:
    """Queue, peer, turn, length and flags: each that is changed is told."""
    name = f"{QUEUES.name}{CPU.suffix}"
    text = emitted(QUEUES)[name].decode()
    call = re.search(rf"{function}\(b, (?:[^()]|\([^()]*\))*\)", text)
    assert call
    arguments = re.split(r",\s*", call[0][len(function) + 1 : -1])
    assert len(arguments) == 7
    for k in range(1, 7):
        changed = [f"{a} + 1" if j == k else a for j, a in enumerate(arguments)]
        said = refused(QUEUES, name, call[0], f"{function}({', '.join(changed)})", CPU)
        assert said.startswith("E438") and "the plan queue " in said


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hccc_prim<", "hccc_primitive<", "E439 .* does not compile"),
        ("#include", "#error", "E439 .* does not compile"),
        ("HCCC_KERNEL\n", "#ifdef __CUDA_ARCH__\n#endif\nHCCC_KERNEL\n", "E439 .* does not comp"),
        ("HCCC_KERNEL\n", "\n", "E439 .* does not compile"),
        (PROGRAM, PROGRAM + "  volatile int n = 0; b.tb / n;\n", "E439 .* stops at rank 0"),
        (PROGRAM, PROGRAM + "  volatile int n = 1 << 30; n = n * 4;\n", "overflows"),
        (
            PROGRAM,
            "static const short t[2] = {}; \n" + PROGRAM + "  volatile int n = t[b.rank];\n",
            "E439 .* stops at rank 2, .* outside its table",
        ),
        (PROGRAM, PROGRAM + "  *(volatile int*)8 = 1;\n", "addresses memory"),
    ],
)
def test_what_does_not_run(old: str, new: str, told: str) -> None:
    said = refused(RING, TEXT, old, new)
    assert re.search(told, said), said


@pytest.mark.parametrize("target", [CPU, CUDA, HIP])
def test_a_text_cannot_reach_the_system(tmp_path: Path, target: Target) -> None:
    """Neither when it runs, nor in a constructor before that."""
    made = tmp_path / "made"
    call = f'open("{made}", 65, 511)'
    name = f"{RING.name}{target.suffix}"
    said = refused(RING, name, PROGRAM, PROGRAM + f"  {call};\n", target)
    assert said.startswith("E439") and "asks the system" in said
    early = f"__attribute__((constructor(101))) static void first() {{ {call}; }}\n"
    assert refused(RING, name, PROGRAM, early + PROGRAM, target).startswith("E439")
    assert not made.exists()


@pytest.mark.slow
def test_a_text_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "RUN_S", 1)
    said = refused(RING, TEXT, PROGRAM, PROGRAM + "  for (volatile int n = 0;; n = 1) {}\n")
    assert said.startswith("E439") and "does not end" in said


@pytest.mark.slow
def test_a_text_that_never_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "COMPILE_S", 1)
    endless = "template <int n> struct t { t<n + 1>* next; int size = sizeof(*next); };\n"
    deep = "".join(f"#define A{k} A{k - 1} A{k - 1}\n" for k in range(1, 40))
    said = refused(RING, TEXT, PROGRAM, f"#define A0 int;\n{deep}A39\n{endless}{PROGRAM}")
    assert said.startswith("E439") and "does not compile" in said


@pytest.mark.slow
def test_a_record_that_the_text_writes_itself() -> None:
    """Forged records are harmless: the reader bounds them and takes only numbers."""
    for forged in ("outcome = 99", "table[0].count = 1LL << 60", "table[5].count = -1"):
        write = f"  if (b.rank == 3) {{ hccc_record->{forged}; for (;;) syscall(SYS_exit, 0); }}\n"
        assert refused(RING, TEXT, PROGRAM, PROGRAM + write)[:3] == "E43"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("8, /* ranks */", "5, /* ranks */", "the C header's shape"),
        ("return hccc_scratch_bytes(", "return 1 + hccc_scratch_bytes(", "sizes 0"),
        ("return hccc_flag_bytes(", "return 1 + hccc_flag_bytes(", "sizes 0"),
        ("_flag_bytes(void)", "_flag_byte(void)", "does not compile"),
    ],
)
def test_the_header(old: str, new: str, told: str) -> None:
    assert told in refused(RING, f"{RING.name}.h", old, new)


def test_user_blocks_of_the_header() -> None:
    said = refused(STAR, f"{STAR.name}.h", "rank == 1 ? 1 : 0", "rank == 2 ? 1 : 0")
    assert "the C header: the text says rank 1, input blocks 0" in said


def test_user_blocks_of_windows() -> None:
    said = refused(STAR, STAR.name + ".cu", "rank == 1 ? 1 : 0", "rank == 2 ? 1 : 0")
    assert "the buffers in windows: the text says rank 1, input blocks 0" in said
    assert "blocks 2" in refused(
        RING, TEXT, "HCCC_OUTPUT_BLOCKS(rank) (1)", "HCCC_OUTPUT_BLOCKS(rank) (2)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, HIP])
def test_the_dispatcher(target: Target) -> None:
    name = f"{RING.name}_{target.name}_dispatch.cpp"
    for old, new, told in (
        ("!strcmp(dtype, #d) &&", "", "asked for int8 and sum"),
        (
            "hccc_known(dtype, op) ?",
            "true ?",
            "asked for int8 and mean: the text gives 6, the plan 2",
        ),
        ("(comm, call", "(comm, 0", "asked for"),
        ("? HCCC_NOT_BUILT", "? HCCC_OK", "asked for"),
    ):
        assert told in refused(RING, name, old, new, target)


@pytest.mark.slow
def test_windows_of_an_entry() -> None:
    """A plan that bounds the window: the entry narrows larger windows."""
    plan = replace(RING, max_window=4, in_place=False)
    files = emitted(plan, CPU)
    assert isinstance(validate(files, Catalogue.of(plan), [CPU]), Validated)
    name = f"{plan.name}{CPU.suffix}"
    for old, new in (
        ("> 4", "> 5"),
        ("= 4;", "= 3;"),
        ("if (!call->window)", "if (call->window)"),
        ("in_place)", "window)"),
    ):
        said = refused(plan, name, old, new, CPU)
        assert "the entry: the text says" in said


def test_room_for_operands() -> None:
    name = f"{RING.name}.cu"
    said = refused(RING, name, "#include", "#define HCCC_OPERANDS 2\n#include")
    assert "room for 2 operands" in said
    assert "neither 0 nor 1" in refused(RING, name, "HCCC_INLINE 0", "HCCC_INLINE 2")


OWN = replace(RING, reductions=("plus: a + b + 2 * 0", "absmax: abs(a) > abs(b) ? a : b"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("t::add(a, b)", "t::add(b, a)", "the text says plus iuf b a add"),
        ("t::add(", "t::subtract(", "subtract"),
        ("LL", "LL + 1", "i0000000000000003"),
        ("number(2LL)", "number(2.0)", "f4000000000000000"),
        ("HCCC_OWN(plus", "HCCC_OWN(minus", "says minus iuf"),
        ('"iuf"', '"iu"', "says plus iu a"),
        (" HCCC_OWN(absmax", " // (absmax", "the plan plus .*;absmax"),
        ("#define HCCC_REDUCTIONS", "#define HCCC_OTHERS", "the text says , the plan plus"),
    ],
)
def test_another_reduction_of_ones_own_is_told(old: str, new: str, told: str) -> None:
    said = refused(OWN, TEXT, old, new)
    assert said.startswith("E438") and re.search(told, said), said
