"""chrome: events of Chrome's trace format, as predicted and as recorded timelines are written.

A process is a rank, a thread one of its thread blocks; times are µs, exact to the ns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from hccc.pictures.primitive_text import PrimitiveText

Event = dict[str, Any]
_MOST_PEERS = 16  # that an event lists


def write(about: Mapping[str, Any], events: Iterable[Event | str], out: TextIO) -> int:
    """Writes a trace as one JSON object; returns the number of events. O(text written)."""
    out.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n')
    count = 0
    for event in events:
        out.write(",\n" if count else "")
        out.write(event if isinstance(event, str) else json.dumps(event, separators=(",", ":")))
        count += 1
    out.write("\n]}\n")
    return count


def us(ns: int) -> str:
    """Writes nanoseconds as decimal µs, exactly: children end where their parents do."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def slice(name: str, at: tuple[int, int], begin: int, end: int, category: str, args: Event) -> str:
    """Writes a stretch of time (ns) of a thread `at` (process, thread)."""
    return (
        f'{{"name":{json.dumps(name)},"cat":"{category}","ph":"X","ts":{us(begin)},'
        f'"dur":{us(end - begin)},"pid":{at[0]},"tid":{at[1]},"args":{json.dumps(args)}}}'
    )


def meta(name: str, pid: int, tid: int, args: Event) -> Event:
    """Returns an event that describes a process or a thread to the viewer."""
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def named(name: str, pid: int, tid: int, text: str) -> Event:
    """Returns an event that names a process or a thread."""
    return meta(name, pid, tid, {"name": text})


def peers(texts: PrimitiveText, p: int) -> Event:
    """Returns the source place of primitive `p`, and the ranks it reads of and writes to."""
    found: Event = {}
    if place := texts.place(p):
        found["source"] = place
    for key, ranks in (("from", texts.sources), ("to", texts.targets)):
        if len(row := ranks.row(p).tolist()):
            found[key] = row[:_MOST_PEERS]
    return found
