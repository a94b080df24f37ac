"""launcher: launches CUDA kernels on the machine for PTX."""

from __future__ import annotations

import shutil

from hccc.base.diagnostics import fail
from hccc.runtime.cuda import KERNEL, CudaCatalogueLauncher, CudaLauncher
from hccc.runtime.machines.launcher import OnMachine
from hccc.runtime.machines.ptx.machine import PtxKernel


class _OnPtx(OnMachine):
    arch = "sm_90"
    hip = False

    def command(self) -> list[str]:
        """Returns nvcc's command. Raises UserError E470 without nvcc."""
        compiler = shutil.which("nvcc")
        if compiler is None:
            help = "install the CUDA toolkit, or launch on the CPU"
            raise fail("E470", "--device ptx runs what nvcc prints, and there is none", help=help)
        return [compiler, "-std=c++17", "-O3", "-ptx", "-lineinfo", f"-arch={self.arch}"]

    def kernel_of(self, text: str) -> PtxKernel:
        """Returns the kernel of a text of PTX. Raises UserError E487."""
        return PtxKernel(text, KERNEL)


class PtxLauncher(_OnPtx, CudaLauncher):
    """All ranks of one generated collective on the machine, as `CudaLauncher` on a GPU."""


class PtxCatalogueLauncher(_OnPtx, CudaCatalogueLauncher):
    """All ranks of a catalogue on the machine, as `CudaCatalogueLauncher` on a GPU."""
