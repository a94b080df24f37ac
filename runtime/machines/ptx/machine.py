"""machine: a kernel of a text of PTX on `machine.cpp`."""

from __future__ import annotations

import ctypes
from pathlib import Path

from hccc.runtime.machines.kernel import Array, MachineCode, MachineKernel
from hccc.runtime.machines.ptx.encode import PtxProgram, encode
from hccc.runtime.machines.ptx.parse import parse, refuse

SOURCE = Path(__file__).with_name("machine.cpp")
_HEADERS = tuple(SOURCE.with_name(f"{name}.h") for name in ("instructions", "machine"))


class _ProgramRecord(ctypes.Structure):
    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("code", "functions", "constants", "copies", "opcodes")),
        *((name, ctypes.c_uint64) for name in ("n_code", "stack_bytes", "shared_bytes")),
    )


class PtxKernel(MachineKernel):
    """A kernel of a text of PTX, ready to run."""

    def __init__(self, text: str, name: str) -> None:
        """Raises UserError E487 for what the machine does not run."""
        p = encode(parse(text))
        if name not in p.names:
            raise refuse(f"there is no kernel {name}", 1)
        super().__init__(SOURCE, _HEADERS, _code_of(p, p.names[name]))


def _code_of(p: PtxProgram, function: int) -> MachineCode:
    opcodes = (ctypes.c_char_p * len(p.opcodes))(*(opcode.encode() for opcode in p.opcodes))
    tables: list[Array] = [p.code, p.functions, p.constants, p.copies]
    table = _ProgramRecord(
        *(table.ctypes.data for table in tables),
        ctypes.cast(opcodes, ctypes.c_void_p).value,
        len(p.code),
        p.stack_bytes,
        p.shared_bytes,
    )
    return MachineCode(
        language="PTX",
        unit="thread",
        table=table,
        kept=(opcodes, p),
        code=p.code,
        origins=p.origins,
        opcodes=p.opcodes,
        files=p.module.files,
        memory=p.memory,
        function=function,
        params_at=p.parameters[function],
    )
