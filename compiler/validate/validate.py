"""validate: checks that the text of a kernel does exactly what its Plan says.

Control flow of generated code depends on rank, thread block and sizes, never on data. So the very
bytes are compiled for the host against headers that record every primitive, wait, post and operand
(`execute`), run for every rank, thread block and channel, and compared with the Plan
(`differences`), together with the entry, the C header and the dispatcher. That is translation
validation (Pnueli, Siegel, Singerman 1998): of each text, not of the emitter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from hccc.base.diagnostics import UserError, fail
from hccc.base.interruptible import interruptible
from hccc.base.limits import COMPILERS
from hccc.emit.targets import TARGETS, Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.validate import unit
from hccc.validate.differences import difference
from hccc.validate.entry import validate_entry
from hccc.validate.execute import execute
from hccc.validate.processes import LimitedProcesses
from hccc.validate.tables import expected
from hccc.validate.validated import Unvalidated, Validated, together

_HELP = "the plan is what was proved; this is a bug in hccc unless somebody edited the text"


def validate(
    files: Mapping[str, bytes], catalogue: Catalogue, targets: Sequence[Target]
) -> Validated:
    """Compares the texts of `targets` among `files`, by name, with the compiled plans.

    A directory's C header and dispatchers are validated too if they are among the files. O(P log
    P), and the time of the host compiler.

    Raises:
        UserError: E412 there is no compiler; E438 a text does something else than the plan says;
        E439 it does not compile or does not end.
    """
    found = [_validate(files, plan, targets) for plan in catalogue.plans]
    if not catalogue.alone:  # the entry of a plan alone is part of its own unit
        for target in targets:
            validate_entry(files, catalogue, target)
    return together(found)


def _validate(files: Mapping[str, bytes], plan: Plan, targets: Sequence[Target]) -> Validated:
    wanted = interruptible(expected)(plan)
    processes = LimitedProcesses()

    def check(target: Target) -> None:
        recording = execute(files, plan, target, wanted, processes)
        if (message := difference(recording, wanted, plan)) is not None:
            raise fail("E438", f"{unit.text_name(plan, target)}: {message}", help=_HELP)

    with ThreadPoolExecutor(max(1, min(len(targets), COMPILERS, cpu_count() or 1))) as pool:
        try:
            for done in [pool.submit(check, target) for target in targets]:
                done.result()
        finally:
            processes.end()  # of an error the others, and all where somebody presses Ctrl-C
    operands = sum(len(wanted[name]) for name in ("sources", "destinations", "puts"))
    return Validated(
        tuple(t.name for t in targets),
        len(plan),
        operands,
        len(wanted["waits"]),
        len(wanted["posts"]),
        len(wanted["neighbours"]),
    )


def validate_present(files: Mapping[str, bytes], catalogue: Catalogue) -> Validated | Unvalidated:
    """Validates the texts of all targets that `files` has the kernels of; returns why it cannot.

    Raises:
        UserError: E438, E439 as `validate`.
    """
    plans = catalogue.plans
    present = [t for t in TARGETS if all(unit.text_name(plan, t) in files for plan in plans)]
    try:
        return validate(files, catalogue, present)
    except UserError as error:
        if error.problem.code != "E412":
            raise
        return Unvalidated(tuple(t.name for t in present), error.problem.message)
