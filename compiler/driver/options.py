"""options: what may be chosen about how a Plan is made.

The one declaration of each: `cli/options` makes the command line's options of these fields, and a
plan file says which were given (`ir/provenance`). Nothing here takes long to import.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from hccc.base.diagnostics import UserError, fail, of_command_line
from hccc.base.sizes import size_of
from hccc.emit.targets import CPU, CUDA, HIP
from hccc.ir.choices import (
    Accumulate,
    Allocator,
    Bits,
    Fusion,
    NetworkLowering,
    PlanProtocol,
    Scheduler,
)
from hccc.ir.limits import MAX_CHANNELS, MAX_WARPS
from hccc.ir.transport import CHOICES, Transport

AUTO = "auto"  # what an option is that is left open
TUNINGS = ("fast", "full", "off")
TARGETS = (CUDA.name, HIP.name, CPU.name)


class Output(StrEnum):
    """What can be printed of a compilation, in the order in which it is made (`outputs`)."""

    PROGRAM = "program"
    DAG = "dag"
    PIPELINE = "pipeline"
    PLAN = "plan"
    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    MSCCL_XML = "msccl-xml"
    MSCCLPP_JSON = "mscclpp-json"


class PassName(StrEnum):
    """The passes from a program to a plan, in their order (`pass_manager`)."""

    VERIFY = "verify"
    CHECK_REACHABLE = "check_reachable"
    DEPEND = "depend"
    SCHEDULE = "schedule"
    LOWER = "lower"
    MULTICAST = "multicast"
    PACKETS = "packets"
    FUSE = "fuse"
    ONE_SHOT = "one_shot"
    PLACE = "place"
    ALLOCATE = "allocate"
    SYNC = "sync"
    GREET = "greet"
    LIMIT_BYTES = "limit_bytes"
    LIMIT_WINDOW = "limit_window"


# Of a program only; nothing about them needs a proof of the plan.
BEFORE_THE_PLAN = (Output.PROGRAM, Output.DAG, Output.PIPELINE)


def _one_of(default: str | None, choices: tuple[str, ...], help: str) -> Any:
    return field(default=default, metadata={"choices": choices, "help": help})


def _auto_or(choices: type[StrEnum], help: str) -> Any:
    return _one_of(AUTO, (AUTO, *(choice.value for choice in choices)), help)


def _number(default: int | None, least: int, most: int | None, help: str) -> Any:
    return field(default=default, metadata={"range": (least, most), "help": help})


@dataclass(frozen=True, slots=True)
class Options:
    """How to make a Plan. None keeps what the program's header says.

    Raises:
        UserError: E410 for a value that an option does not take.
    """

    scheduler: str = _auto_or(
        Scheduler,
        "Order of the tasks: ResCCL's (hpds), list scheduling, or round-robin, to compare. auto: "
        "the faster of hpds and list on the --cluster; of more than 32,768 transfers the one with "
        "fewer steps.",
    )
    allocator: str = _auto_or(
        Allocator,
        "Thread blocks of a channel: one for each connection, stage or depth of data, so many by "
        "depth (depth8) or by the load of links (load8), or shared by connections that are idle in "
        "turn (state). auto: the fastest of state, depths and, where links are unlike, loads on "
        "the --cluster; of more than 8,192 transfers, state.",
    )
    fuse: str = _auto_or(Fusion, "How far to fuse primitives.")
    transport: Transport = field(
        default=Transport.AUTO,
        metadata={
            "choices": tuple(choice.name.lower() for choice in CHOICES),
            "help": "direct: put and get. staged: through slots. multicast: by the NVLink switch. "
            "auto: direct in a memory domain, between two see --network-lowering.",
        },
    )
    network_lowering: str = _auto_or(
        NetworkLowering,
        "Between memory domains: messages through slots, puts by a proxy, or (auto) the faster.",
    )
    protocol: str | None = _one_of(
        None,
        (*(one.value for one in PlanProtocol), AUTO),
        "ll: packets with flags, for calls up to 64 KB, on GPUs 4 MB. auto: where faster on "
        "the --cluster.",
    )
    accumulate: str | None = _one_of(
        None,
        tuple(one.value for one in Accumulate),
        "The type in which floats are added: of at least 32 bits, of 64, or (same) their own, "
        "rounded after every two.  [default: float32]",
    )
    bits: str | None = _one_of(
        None,
        tuple(one.value for one in Bits),
        "any: floats are added in any order.",
    )
    slots: int = _number(2, 1, 1 << 16, "Slots of a queue, a power of two.")
    channels: int | None = _number(
        None, 1, MAX_CHANNELS, "Channels, instead of the program's nChannels."
    )
    warps: int | None = _number(None, 1, MAX_WARPS, "Per block, instead of the program's nWarps.")
    max_sms: int | None = _number(
        None,
        1,
        None,
        "Most thread blocks of a rank, all channels together; each takes an SM. By default the "
        "larger of 32 (NCCL's most) and a quarter of the SMs, but at most half of them.",
    )
    tune: str = _one_of(
        "fast",
        TUNINGS,
        "How thoroughly to choose what is left open, by simulated time on the --cluster. off: "
        "nothing is chosen, all is as the program's header says.",
    )
    plans: int = _number(
        4,
        1,
        16,
        "Most plans of a directory; each serves the sizes at which it is best on the --cluster.",
    )
    sizes: str = field(
        default="1K..4G",
        metadata={"help": "Message sizes to choose for: a range in bytes, or one size."},
    )
    deterministic: bool = field(
        default=False,
        metadata={
            "help": "Refuse kernels that add the terms of a sum in an order that depends on the "
            "size of a call, or in orders that give ranks different results."
        },
    )
    verify_each: bool = field(
        default=False, metadata={"help": "Check the invariants after every pass."}
    )
    prove: bool = True
    reductions: tuple[str, ...] = ()  # texts of one's own, which kernels have besides

    def __post_init__(self) -> None:
        for option in fields(self):
            value, name = getattr(self, option.name), _said(option.name)
            if isinstance(value, StrEnum):
                object.__setattr__(self, option.name, value := value.value)
            choices = option.metadata.get("choices")
            if choices and not (value is None is option.default):
                _check_choice(name, value, choices, type(option.default))
            if (limits := option.metadata.get("range")) and value is not None:
                check_integer(name, value, *limits)
            if isinstance(option.default, str) and not isinstance(value, str):
                raise fail("E410", f"{name} {value!r} is not text")
        if self.deterministic and self.sum_bits is Bits.ANY:
            message = f"{_said('deterministic')} and {_said('bits')} any"
            raise fail("E415", message, help="leave one of the two out")
        if self.slots & (self.slots - 1):
            raise fail("E410", f"{_said('slots')} {self.slots} is not a power of two")

    @property
    def tuned(self) -> bool:
        """Whether what is left open is chosen by simulated time on a cluster. Not so of protocol
        LL, so far: it has one thread block a channel, and the header's channels."""
        return self.tune != "off" and self.simple

    @property
    def simple(self) -> bool:
        """Whether plans are of the simple protocol, or may be."""
        return self.protocol != PlanProtocol.LL

    @property
    def sums(self) -> Accumulate:
        """The type in which a primitive adds its sources."""
        return Accumulate(self.accumulate or Accumulate.FLOAT32)

    @property
    def sum_bits(self) -> Bits:
        """Whether floats may be added in any order."""
        return Bits(self.bits or Bits.SAME)

    def as_text(self) -> dict[str, str | int | bool]:
        """Returns the options by name, as plan files and pages have them; those left open are left
        out."""
        chosen: dict[str, str | int | bool] = {}
        for option in selectable():
            value = getattr(self, option.name)
            if value is not None and value is not False:
                chosen[option.name] = value.name.lower() if isinstance(value, Transport) else value
        return chosen

    @staticmethod
    def from_text(chosen: Mapping[str, str | int | bool]) -> Options:
        """Reads options that `as_text` printed, as far as this hccc knows them and their values."""
        known = Options()
        for option in selectable():
            if option.name in chosen:
                with suppress(UserError, KeyError):
                    known = replace(known, **{option.name: _value(option, chosen[option.name])})
        return known


def selectable() -> list[Field[Any]]:
    """Returns the options of the command line, in order: those with a help text."""
    return [option for option in fields(Options) if "help" in option.metadata]


def _value(option: Field[Any], text: str | int | bool) -> Any:
    """Returns the value of an option that a plan file has as text. Raises KeyError for no
    transport."""
    return Transport[str(text).upper()] if option.name == "transport" else text


def check_integer(name: str, value: object, least: int, most: int | None) -> int:
    """Returns `value` as an int. Raises UserError E410 if it is none, or out of range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise fail("E410", f"{name} {value!r} is not an integer") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        limits = f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
        raise fail("E410", f"{name} {value!r} is not {limits}")
    return number


def check_size(name: str, value: object) -> int:
    """Returns a size in bytes, of a number or of text such as `64M`. Raises UserError E410 for
    anything else."""
    if not isinstance(value, str):
        return check_integer(name, value, 0, None)
    try:
        return size_of(value)
    except ValueError as error:
        raise fail("E410", f"{name}: {error}") from None


def _said(field: str) -> str:
    """Returns what messages call an option: `--max-sms` on the command line, `max_sms` in
    Python."""
    return f"--{field.replace('_', '-')}" if of_command_line.get() else field


def _check_choice(name: str, value: object, choices: tuple[str, ...], kind: type) -> None:
    text = value.name.lower() if isinstance(value, Transport) else value
    if not isinstance(value, kind if kind is Transport else str) or text not in choices:
        help = "Transport.AUTO, DIRECT, STAGED or MULTICAST" if kind is Transport else None
        raise fail("E410", f"{name} {text!r} is not one of {', '.join(choices)}", help=help)
