"""Collectives between processes: the runtime library `libhccc` and its Python interface.

`include/hccc_runtime.h` is its C interface and its contract; the sources beside it are the library;
`runtime_library` builds and loads it. Python programs use `communicator`; `rank` has its life
cycle, `groups` groups of calls, `messages` what receives got, `buffers` checks of arrays, `errors`
results.
"""

from hccc.runtime.communicator.communicator import (
    Communicator,
    CommunicatorError,
    Received,
    group,
    unique_id,
)

__all__ = ["Communicator", "CommunicatorError", "Received", "group", "unique_id"]
