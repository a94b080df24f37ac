"""inlined: reads from the debug information of a text where each instruction is inlined.

clang's assembly says of an instruction its own place only. The calls that brought it there are in
DWARF 4, of which clang prints names beside the values:

    .byte 4                ; Abbrev [4] 0x3a:0x1b DW_TAG_inlined_subroutine
    .quad .Ltmp5           ; DW_AT_low_pc
    .long .Ltmp6-.Ltmp5    ; DW_AT_high_pc
    .byte 12               ; DW_AT_call_line
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from hccc.runtime.machines.kernel import Place

_ENTRY = re.compile(r".*; Abbrev \[\d+\] 0x\w+:0x\w+ DW_TAG_(\w+)")
_FIELD = re.compile(r"\s*\.\w+\s+(\S+)\s*; DW_AT_(low_pc|high_pc|ranges|call_\w+)")
_RANGE = re.compile(r"\s*\.quad\s+([.\w]+)-")
_LIST = re.compile(r"(\.Ldebug_ranges\d+):")
Fields = dict[str, str]


def calls_of(lines: Sequence[str], labels: Mapping[str, int], n: int) -> list[tuple[Place, ...]]:
    """Returns the calls that each of n instructions is inlined at, the innermost first. labels: the
    instruction that each stands before."""
    found = list[tuple[Place, ...]]([()] * n)
    ranges = dict(_ranges(lines))
    for fields in _entries(lines):  # what is inlined comes after what it is inlined in
        file, line, column = (int(fields.get(f"call_{n}", 0)) for n in ("file", "line", "column"))
        if "ranges" in fields:
            bounds = ranges.get(fields["ranges"], [])
        else:
            bounds = [fields["low_pc"], fields["high_pc"].partition("-")[0]]
        if not labels.keys() >= set(bounds):
            continue  # of another version of DWARF
        for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
            for at in range(labels[begin], labels[end]):
                found[at] = ((file, line, column), *found[at])
    return found


def _entries(lines: Sequence[str]) -> Iterator[Fields]:
    """Yields the fields of each inlined function."""
    fields: Fields | None = None
    for line in lines:
        if entry := _ENTRY.match(line):
            if fields is not None:
                yield fields
            fields = {} if entry[1] == "inlined_subroutine" else None
        elif fields is not None and (field := _FIELD.match(line)):
            fields[field[2]] = field[1]
    if fields is not None:
        yield fields


def _ranges(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each list of ranges: its name, then beginnings and ends in turn."""
    name, bounds = "", list[str]()
    for line in lines:
        if begun := _LIST.match(line):
            name, bounds = begun[1], []
        elif name and (bound := _RANGE.match(line)):
            bounds.append(bound[1])
        elif name:
            yield name, bounds
            name = ""
