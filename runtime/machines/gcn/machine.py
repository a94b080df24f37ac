"""machine: a kernel of a text of assembly on `machine.cpp`."""

from __future__ import annotations

import ctypes
from pathlib import Path

from hccc.runtime.machines.gcn.encode import GcnProgram, encode
from hccc.runtime.machines.gcn.parse import parse
from hccc.runtime.machines.kernel import MachineCode, MachineKernel

SOURCE = Path(__file__).with_name("machine.cpp")
_HEADERS = tuple(SOURCE.with_name(f"{name}.h") for name in ("accesses", "instructions", "machine"))
_USER = "user_sgpr_"
# The kernel's settings that say what scalar registers hold at first, in their order.
_GIVEN = (
    *(f"{_USER}private_segment_buffer", f"{_USER}dispatch_ptr", f"{_USER}queue_ptr"),
    *(f"{_USER}kernarg_segment_ptr", f"{_USER}dispatch_id", f"{_USER}flat_scratch_init"),
    *(f"{_USER}private_segment_size", "system_sgpr_workgroup_id_x", "system_sgpr_workgroup_id_y"),
    *("system_sgpr_workgroup_id_z", "system_sgpr_workgroup_info"),
)


class _GcnRecord(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("code", "opcodes")),
        *((name, ctypes.c_uint64) for name in ("n_code", "shared_bytes")),
        *((name, ctypes.c_int32) for name in ("first", "registers", "private_bytes")),
        *((name, ctypes.c_int32) for name in _GIVEN),
        ("one_cache", ctypes.c_int32),
    )


class GcnKernel(MachineKernel):
    """A kernel of a text of assembly, ready to run."""

    def __init__(self, text: str, name: str) -> None:
        """Raises UserError E487 for what the machine does not run."""
        super().__init__(SOURCE, _HEADERS, _code_of(encode(parse(text), name)))


def _code_of(p: GcnProgram) -> MachineCode:
    opcodes = (ctypes.c_char_p * len(p.opcodes))(*(opcode.encode() for opcode in p.opcodes))
    table = _GcnRecord(
        p.code.ctypes.data,
        ctypes.cast(opcodes, ctypes.c_void_p).value,
        len(p.code),
        p.settings["group_segment_fixed_size"],
        p.first,
        p.registers,
        p.settings["private_segment_fixed_size"],
        *(p.settings.get(name, 0) for name in _GIVEN),
        p.module.arch < "gfx940",
    )
    return MachineCode(
        language="assembly",
        unit="wave",
        table=table,
        kept=(opcodes, p),
        code=p.code,
        origins=tuple(p.module.code),
        opcodes=p.opcodes,
        files=p.module.files,
        memory=p.memory,
        function=0,
        params_at=0,
    )
