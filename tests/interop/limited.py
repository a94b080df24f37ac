"""Reads XML files the way `hccc check` does, each in a process with little memory and time.

`python limited.py FILE...` prints one JSON object a line: the error's code (null when it was
accepted, "crash" for anything but a UserError, "killed" by a limit) and its first line.
"""

from __future__ import annotations

import json
import os
import resource
import sys

from hccc.base.diagnostics import UserError
from hccc.interop import msccl_plan
from hccc.lang.msccl import load as msccl_xml

MEMORY = 500 << 20  # bytes of address space
SECONDS = 5  # of processor time


def read(path: str) -> dict[str, object]:
    """Reads one file under limits of memory and time: its error code and message."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        msccl_plan.to_plan(msccl_xml.load(path))
        code, said = None, ""
    except UserError as error:
        code, said = error.problem.code, str(error)[:400]
    except BaseException as error:
        code, said = "crash", repr(error)[:400]
    return {"code": code, "said": said}


def main(paths: list[str]) -> None:
    """Reads each file in a child of its own, so that none inherits another's memory."""
    for path in paths:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            print(json.dumps(read(path)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"code": "killed", "said": f"status {status}"}))


if __name__ == "__main__":
    main(sys.argv[1:])
