"""errors: results of the runtime library as exceptions."""

from __future__ import annotations

from enum import IntEnum

from hccc.base.diagnostics import Problem, UserError
from hccc.runtime.communicator.runtime_library import library


class Result(IntEnum):
    """hcccResult_t."""

    SUCCESS = 0
    UNHANDLED_DEVICE_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7
    TIMEOUT = 8
    ABORTED = 9


class CommunicatorError(UserError):
    """A call failed, with `result`; `Communicator.error` tells whether the communicator is lost."""

    def __init__(self, result: Result, text: str) -> None:
        super().__init__(Problem("E473", text))
        self.result, self.text = result, text

    def __reduce__(  # type: ignore[override]
        self,
    ) -> tuple[type[CommunicatorError], tuple[Result, str]]:
        return (CommunicatorError, (self.result, self.text))


def check(result: int) -> None:
    """Raises CommunicatorError, with the error's text, for anything but success."""
    if result:
        found = library().last_error() or library().meaning(result)
        raise CommunicatorError(Result(result), found)
