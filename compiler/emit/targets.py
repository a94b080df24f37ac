"""targets: the targets of a translation unit: CUDA, HIP, CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One language to emit.

    constant: how a table that device code reads is declared; suffix: of the file's name; stream:
    the type of the stream a launch is queued on, "" if a launch returns when done.
    """

    name: str
    title: str
    suffix: str
    constant: str
    stream: str


CUDA = Target("cuda", "CUDA", ".cu", "static __device__ const", "struct CUstream_st*")
HIP = Target("hip", "HIP", ".hip", "static __attribute__((device)) const", "struct ihipStream_t*")
CPU = Target("cpu", "the CPU", "_cpu.cpp", "static const", "")
TARGETS = (CPU, CUDA, HIP)
