"""harness: a collective of a few ranks on a machine, whose text can be replaced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from hccc.base.diagnostics import UserError
from hccc.emit import directory
from hccc.emit.targets import Target
from hccc.ir import plan_json
from hccc.ir.catalogue import Catalogue
from hccc.ir.plan import Plan
from hccc.runtime.build import Variant
from hccc.runtime.layout import shape_of
from hccc.runtime.machines.kernel import MachineKernel
from hccc.runtime.machines.launcher import OnMachine
from hccc.runtime.request import LaunchRequest

# Headers of what synchronises primitives; others enter and leave launches.
OF_PRIMITIVES = {"execute.h", "primitive.h", "gpu_body.h"}

MISALIGNED = [  # an example, the bytes of a call, and more options
    ("direct_allreduce", "26", []),
    ("ring_allgather", "208", []),
    ("ring_allgather", "16048", ["--transport", "staged"]),
    ("direct_reducescatter", "16048", []),
]


class Harness:
    """An AllReduce of a few ranks, whose text can be replaced."""

    def __init__(
        self,
        plan: Plan,
        place: Path,
        launcher: type[OnMachine],
        target: Target,
        count: int = 50,
    ) -> None:
        """Makes one. count: elements."""
        directory.write(place, directory.files(Catalogue.of(plan), [target], plan_json.dumps(plan)))
        source = place / f"{plan.name}{target.suffix}"
        self.plan, self.source, self.launcher, self.count = plan, source, launcher, count
        self.text = self.compiled()
        self._kernels = dict[str, MachineKernel]()

    def compiled(self) -> str:
        """Returns the text of the kernels."""
        return self._launcher().text(self.source.resolve(), Variant("float32"))

    def edit(self, header: str, old: str, new: str) -> str:
        """Returns the text of the kernels with another text in a header."""
        path = self.source.parent / "hccc" / header
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        try:
            return self.compiled()
        finally:
            path.write_text(text)

    def _launcher(self) -> OnMachine:
        shape = shape_of(self.plan)
        return self.launcher(self.source, shape, self.plan.collective, self.plan.warps)

    def kernel(self, text: str) -> MachineKernel:
        """Returns the kernel of a text; that of the last one is kept."""
        if text not in self._kernels:
            self._kernels = {text: self._launcher().kernel_of(text)}
        return self._kernels[text]

    def fault_after_wrap(self, text: str, seed: int) -> str:
        """Makes short calls of packets before their epochs wrap, and long ones after, where others
        of the same epochs, 2 and 3, have left their packets. Returns what was wrong, or nothing."""
        built = self._launcher()
        built.seed = seed
        built.kernels[built.source, Variant("float32")] = self.kernel(text)
        shape = shape_of(self.plan)
        for words in built._flags.view(np.uint32).reshape(self.plan.n_ranks, -1):
            for parity, slots in enumerate(np.split(words[shape.packets_at // 4 :], 2)):
                slots[1::2] = 2 + parity << 16
            words[32 * shape.state_at + 1] = 0xFFFD
        for count in (2, 2, self.count, self.count):
            buffers = [built.arrays.zeros(count, np.float32) for _ in range(2 * self.plan.n_ranks)]
            for rank in range(self.plan.n_ranks):
                buffers[rank][:] = np.arange(count) + 1 + rank
            halves = buffers[: self.plan.n_ranks], buffers[self.plan.n_ranks :]
            try:
                built.launch_all([halves], LaunchRequest(count, "float32", timeout=0, deadline=5.0))
            except UserError as error:
                return error.problem.message
            wanted = np.sum(halves[0], axis=0)
            if not all((o == wanted).all() for o in halves[1]):
                return f"wrong data of {count}"
        return ""

    def fault(self, text: str, seed: int) -> str:
        """Queues three calls with a text: of all but the first, inputs are the outputs before.
        Returns what was wrong, or nothing."""
        built = self._launcher()
        built.seed = seed
        kernel = self.kernel(text)
        built.kernels[built.source, Variant("float32")] = kernel
        n, arrays = self.plan.n_ranks, built.arrays
        values = [np.arange(self.count, dtype="f4") + 100 * k for k in range(n)]
        buffers = [[arrays.asarray(v) for v in values]]
        for _ in range(3):
            buffers.append([arrays.zeros(self.count, np.float32) for _ in range(n)])
        calls = list(pairwise(buffers))
        request = LaunchRequest(self.count, "float32", timeout=0, deadline=5.0)
        try:
            built.launch_all(calls, request)
        except UserError as error:
            return error.problem.message
        wanted = n * n * sum(values)
        return "" if all((o == wanted).all() for o in buffers[-1]) else "wrong data"
