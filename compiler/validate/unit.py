"""unit: the translation unit that runs a text: the unchanged text, and the code that calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hccc.emit.targets import Target
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.validate import library_facts, vocabulary
from hccc.validate.tables import entries, queries

UNIT = "recording-unit.cpp"  # no text can have this name: `-` is in no C name
PRETENDED = {"cuda": "__CUDACC__", "hip": "__HIP__"}  # what the target's compiler defines


def text_name(plan: Plan, target: Target) -> str:
    """Returns the file name of the translation unit of `target`."""
    return f"{plan.name}{target.suffix}"


def names(plan: Plan, target: Target) -> list[str]:
    """Lists the files to run for `target`, the text first; the others may be missing."""
    dispatch = f"{plan.name}_{target.name}_dispatch.cpp"
    return [text_name(plan, target), f"{plan.name}.h", dispatch]


def lay_out(place: Path, files: Mapping[str, bytes], plan: Plan, target: Target) -> None:
    """Writes the files to compile into the folder `place`: the files of `names`, byte for byte.

    Raises:
        UserError: E439 one has what hccc does not write (`vocabulary`).
    """
    for name in names(plan, target):
        if name in files:
            vocabulary.check(name, files[name], plan.name, target, plan.reductions)
            (place / name).write_bytes(files[name])
    (place / f"{plan.name}_built.h").write_text("#define HCCC_BUILT HCCC_MOST_ENTRIES\n")
    (place / UNIT).write_text("\n".join(_lines(files, plan, target)) + "\n")


def _lines(files: Mapping[str, bytes], plan: Plan, target: Target) -> Iterator[str]:
    text, header, dispatch = names(plan, target)
    yield '#include "hccc/recorder.h"'  # before anything of the text
    if target.name in PRETENDED:
        yield f"#define {PRETENDED[target.name]} 1"
    yield f'#include "{text}"'
    yield f"#define HCCC_VALIDATED(rest) {plan.name}##rest"
    yield f"#define HCCC_ENTRY_OF(d, o) {plan.name}_{target.name}_##d##_##o"
    yield f"#define HCCC_BY_NAME {plan.name}_{target.name}"
    yield f"#define HCCC_IS_GPU {int(bool(target.stream))}"
    yield f"#define HCCC_HAS_HEADER {int(header in files)}"
    yield f"#define HCCC_DESCRIBE {plan.name}_{target.name}_library"
    yield f"#define HCCC_SAYS {library_facts.strings(Catalogue.of(plan), target)}"
    both = header in files and dispatch in files
    yield f"#define HCCC_HAS_DISPATCH {int(both)}"
    built = [f"E({d}, {o})" for d, o in entries(plan)]
    yield f"#define HCCC_ENTRIES(E) {' '.join(built[1:])}"
    yield f"#define HCCC_MOST_ENTRIES(E) {' '.join(built[:-1])}"
    asked = (f"{{{string(d)}, {string(o)}}}" for d, o in queries(plan))
    yield f"#define HCCC_QUERIES {', '.join(asked)}"
    if header in files:
        yield f'#include "{header}"'
    if both:
        yield f'#include "{dispatch}"'
    yield '#include "hccc/record_text.h"'


def string(word: str | None) -> str:
    """Returns a C string literal, or null."""
    return "nullptr" if word is None else f'"{word}"'
