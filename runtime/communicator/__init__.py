"""Collectives between processes: the runtime library `libhccc` and its Python face.

`include/hccc_runtime.h` is its C interface and says what it promises; the sources beside it are the
library; `library` builds and loads it, `communicator` has what Python programs use: `rank` its
life, `groups` several calls at once, `buffers` what is checked of arrays, `errors` results.
"""

from hccc.runtime.communicator.communicator import (
    Communicator,
    CommunicatorError,
    group,
    unique_id,
)

__all__ = ["Communicator", "CommunicatorError", "group", "unique_id"]
