"""assertions: the assertion that an algorithm is right, and its text for a message."""

from __future__ import annotations

from hccc.base.diagnostics import UserError
from hccc.ir import program as program_ir
from hccc.ir.program import Program
from hccc.passes.verify import verify
from hccc.testing.reference import is_correct


def text(program: Program) -> str:
    """Writes `program` in the transfer language, as one text: save it as .rccl and run it."""
    return "\n".join(program_ir.lines(program)) + "\n"


def assert_correct(program: Program) -> None:
    """Raises AssertionError unless `program` performs its collective, saying what is wrong.

    The verdict is `reference.is_correct`'s, the explanation `verify`'s; the program follows in
    the transfer language.
    """
    try:
        verify(program)
        reason = None
    except UserError as error:
        reason = str(error)
    if is_correct(program):
        assert reason is None, f"hccc refuses a correct program: {reason}\n\n{text(program)}"
        return
    raise AssertionError(f"{reason or 'hccc accepts a wrong program'}\n\n{text(program)}")
