"""worker: a process that reads and proves the texts of an editor, one request after the other.

    {"call": "mistakes", "text": {"text": "...", "name": "ring.rccl"}, "more": []}

on stdin is answered by `{"answer": ...}` on stdout, or `{"failed": ...}`. It is a process of its
own so that whatever takes too long, or is asked no longer, can be ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from hccc.base.diagnostics import UserError
from hccc.editors import diagnosis, moves
from hccc.editors.subject import Text

_CALLS: dict[str, Callable[..., object]] = {
    "mistakes": diagnosis.mistakes,
    "proofs": diagnosis.proofs,
    "unproved": diagnosis.unproved,
    "hover": moves.hover,
    "next_uses": moves.next_uses,
    "same_chunks": moves.same_chunks,
}


def answered(request: dict[str, Any]) -> dict[str, object]:
    """Answers one request. A text that cannot be read has no answer: None."""
    try:
        return {"answer": _CALLS[request["call"]](Text(**request["text"]), *request["more"])}
    except UserError:
        return {"answer": None}
    except Exception:
        return {"failed": traceback.format_exc()}


def main() -> None:
    """Answers requests until stdin ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # nothing else may be written where answers are
        for line in sys.stdin:
            print(json.dumps(answered(json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
