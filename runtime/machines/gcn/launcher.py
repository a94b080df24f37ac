"""launcher: launches HIP kernels on the machine for AMD."""

from __future__ import annotations

import shutil

from hccc.base.diagnostics import fail
from hccc.runtime.cuda import KERNEL, CudaCatalogueLauncher, CudaLauncher
from hccc.runtime.machines.gcn.machine import GcnKernel
from hccc.runtime.machines.launcher import OnMachine

COMPILERS = ("clang++-19", "clang++-20", "clang++-21", "amdclang++")


class _OnGcn(OnMachine):
    arch = "gfx942"
    hip = True

    def command(self) -> list[str]:
        """Returns clang's command. Raises UserError E470 without clang."""
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            help = "install clang 19, or launch on the CPU"
            raise fail("E470", "--device gcn runs what clang prints, and there is none", help=help)
        target = ["-x", "hip", "--cuda-device-only", f"--offload-arch={self.arch}", "-nogpulib"]
        how = ["-nogpuinc", "-Wno-pass-failed", "-gdwarf-4", "-gline-tables-only"]
        return [compiler, "-std=c++17", "-O3", "-S", *target, *how]

    def kernel_of(self, text: str) -> GcnKernel:
        """Returns the kernel of a text of assembly. Raises UserError E487."""
        return GcnKernel(text, KERNEL)


class GcnLauncher(_OnGcn, CudaLauncher):
    """All ranks of one generated collective on the machine, as `CudaLauncher` on a GPU."""


class GcnCatalogueLauncher(_OnGcn, CudaCatalogueLauncher):
    """All ranks of a catalogue on the machine, as `CudaCatalogueLauncher` on a GPU."""
