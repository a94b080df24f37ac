"""Memory that several devices share: the kind requested, and the result of a refusal."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.handwritten import INCLUDE

# The part of HIP's API that is called; it prints its calls, and refuses the flags `refused`.
HIP = """#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef enum { hipSuccess, hipErrorInvalidValue } hipError_t;
#define hipDeviceMallocFinegrained 1
%(uncached)s
static inline hipError_t hipExtMallocWithFlags(void **memory, size_t bytes, unsigned flags) {
  printf("malloc %%u ", flags);
  if (flags == %(refused)d) return hipErrorInvalidValue;
  *memory = malloc(bytes);
  return memset(*memory, 7, bytes) ? hipSuccess : hipErrorInvalidValue;
}
static inline hipError_t hipGetLastError(void) { return hipErrorInvalidValue; }
static inline hipError_t hipMemset(void *memory, int value, size_t bytes) {
  memset(memory, value, bytes);
  return %(memset)s;
}
static inline hipError_t hipStreamSynchronize(void *stream) { return stream ? 1 : hipSuccess; }
static inline hipError_t hipFree(void *memory) {
  printf("free ");
  free(memory);
  return hipSuccess;
}
"""
UNCACHED = "#define hipDeviceMallocUncached 3"
PROGRAM = """#include "hccc/gpu_memory.h"
#include <stdio.h>
int main(void) {
  void *memory = &memory;
  int status = hccc_gpu_allocate(&memory, 0);
  if (status != HCCC_OK || memory) return 1;
  status = hccc_gpu_allocate(&memory, 256);
  printf("status %d %s ", status, !memory ? "null" : *(char *)memory ? "dirty" : "zeroed");
  return memory ? hccc_gpu_free(memory) : 0;
}
"""


def compiled(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compiles PROGRAM as C, with all warnings as errors."""
    gcc = shutil.which("gcc") or shutil.which("cc")
    if not gcc:
        pytest.skip("no C compiler")
    (place / "program.c").write_text(PROGRAM)
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        "-o",
        str(place / "program"),
    ]
    command = [gcc, *flags, *options, str(place / "program.c")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def said(place: Path, uncached: str, refused: int = 0, memset: str = "hipSuccess") -> str:
    """Returns the output of the program and of the API under it."""
    (place / "hip").mkdir()
    api = HIP % {"uncached": uncached, "refused": refused, "memset": memset}
    (place / "hip" / "hip_runtime_api.h").write_text(api)
    done = compiled(place, f"-I{place}", "-D__HIP_PLATFORM_AMD__")
    assert done.returncode == 0, done.stderr
    return subprocess.run([place / "program"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("uncached", "refused", "wanted"),
    [
        (UNCACHED, 0, "malloc 3 status 0 zeroed free "),
        (UNCACHED, 3, "malloc 3 malloc 1 status 0 zeroed free "),
        ("", 0, "malloc 1 status 0 zeroed free "),
        ("", 1, "malloc 1 status 5 null "),
    ],
    ids=["uncached", "no uncached on the device", "no uncached in HIP", "neither"],
)
def test_peers_may_not_see_cached_memory(
    uncached: str, refused: int, wanted: str, tmp_path: Path
) -> None:
    assert said(tmp_path, uncached, refused) == wanted


def test_what_cannot_be_zeroed_is_given_back(tmp_path: Path) -> None:
    wanted = "malloc 3 free status 5 null "
    assert said(tmp_path, UNCACHED, memset="hipErrorInvalidValue") == wanted


def test_it_compiles_with_hip(tmp_path: Path) -> None:
    if not Path("/usr/include/hip/hip_runtime_api.h").exists():
        pytest.skip("HIP's headers are not installed")
    done = compiled(tmp_path, "-D__HIP_PLATFORM_AMD__", "-c")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_it_compiles_with_cuda(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc")
    source = tmp_path / "program.cu"
    source.write_text(PROGRAM)
    flags = ["-Xcompiler", "-Wall,-Wextra,-Werror", f"-I{INCLUDE}", "-o", str(tmp_path / "program")]
    done = subprocess.run([nvcc, *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
