"""compiled: what compiling a program, or reading plans that were compiled before, comes to.

Compiled                a library of Plans, and what was proved of each
├ CompiledProgram       with every IR on the way to it, and how it was chosen
└ LoadedPlans           of a plan's JSON, MSCCL XML, or a Plan
  └ LoadedDirectory     of a directory of kernels
    └ CheckedDirectory  whose files were compared with what its plan emits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hccc.base.shown import brief

if TYPE_CHECKING:  # reports match on these types, and `hccc -h` imports reports
    from hccc.base.diagnostics import Problem
    from hccc.driver.options import Options
    from hccc.driver.tune.tune import Tuned
    from hccc.emit.compare import Sources
    from hccc.ir.catalogue import Catalogue
    from hccc.ir.dag import Dag
    from hccc.ir.pipeline import Pipeline
    from hccc.ir.plan import Plan
    from hccc.ir.program import Program
    from hccc.ir.topology import Topology
    from hccc.proofs.proof import Proof
    from hccc.validate.validated import Unvalidated, Validated

    Proofs = tuple[Proof, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A library of Plans of one collective, and what was proved of each.

    catalogue: the plans, and the sizes that each serves; catalogue_proofs: of each plan, in order.
    plan: the best for all sizes if there were only one (of plans that were read, that of the
    largest sizes); proofs: of it. seconds: by phase. topology: the cluster that was given; None
    without. warnings: what is odd, but not wrong.
    """

    catalogue: Catalogue
    catalogue_proofs: tuple[Proofs, ...]
    plan: Plan
    proofs: Proofs
    seconds: Mapping[str, float] = field(default_factory=dict)
    topology: Topology | None = None
    warnings: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        n, where = len(self.catalogue.plans), self.topology and (self.topology.name or "a cluster")
        proved = "proved" if self.proofs else "not proved"
        plans = f"{n} plan{'s' * (n > 1)}, {proved}{f', for {where}' if where else ''}"
        return brief(self, f"{self.catalogue.name}: {self.catalogue.collective.title}, {plans}")

    def at(self, size: int, in_place: bool) -> Self:
        """Returns the same with the Plan that a call of `size` bytes runs."""
        if self.catalogue.alone or in_place not in self.catalogue.modes:
            return self
        plan = self.catalogue.plan_of(self.catalogue.pick(size, in_place))
        return replace(self, plan=replace(plan, provenance=self.plan.provenance))

    def renamed(self, name: str) -> Self:
        """Returns the same under another name, a legal one (`ir/names`)."""
        plan = replace(self.plan, name=name)
        return replace(self, plan=plan, catalogue=self.catalogue.renamed(name))

    def plan_names(self) -> list[str]:
        """Returns the names of the catalogue's plans, in order."""
        return [plan.name for plan in self.catalogue.plans]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompiledProgram(Compiled):
    """The library of a program, or of several.

    pipeline: the order of the tasks of `plan`; tuned: what was tried and chosen, None where no
    cluster was given or nothing was to be chosen. made_with: by a plan's name, options that leave
    nothing open and make it again but for its window, its grain and its largest call. changes: what
    rescheduling changed, before and after, of an imported schedule; empty of a program.
    """

    pipeline: Pipeline
    tuned: Tuned | None
    made_with: Mapping[str, Options]
    changes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def dag(self) -> Dag:
        """The dependencies of the program's tasks."""
        return self.pipeline.dag

    @property
    def program(self) -> Program:
        """The program that `plan` was compiled from, verified."""
        return self.dag.program

    @property
    def options(self) -> Options:
        """Options that leave nothing open and make `plan` again but for its window and grain."""
        return self.made_with[self.plan.name]

    def renamed(self, name: str) -> Self:
        """Returns the same under another name, a legal one (`ir/names`)."""
        made = Compiled.renamed(self, name)
        names = {
            self.plan.name: name,
            **dict(zip(self.plan_names(), made.plan_names(), strict=True)),
        }
        made_with = {names[known]: options for known, options in self.made_with.items()}
        return replace(made, made_with=made_with)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadedPlans(Compiled):
    """Plans that were compiled before: what they were made from is not known."""

    @staticmethod
    def of(
        catalogue: Catalogue,
        proofs: Sequence[Proofs] = (),
        seconds: Mapping[str, float] | None = None,
        topology: Topology | None = None,
    ) -> LoadedPlans:
        """Returns the plans of a catalogue. proofs: of each, in order; none where none was made."""
        each = tuple(proofs) or ((),) * len(catalogue.plans)
        plan = catalogue.plans[0]
        if not catalogue.alone:
            plan = replace(catalogue.largest, provenance=catalogue.provenance)
        return LoadedPlans(
            catalogue=catalogue,
            catalogue_proofs=each,
            plan=plan,
            proofs=each[catalogue.last.plan],
            seconds=seconds or {},
            topology=topology,
        )

    def read_from(self, directory: Path) -> LoadedDirectory:
        """Returns the same plans, as those of a directory."""
        return LoadedDirectory(directory=directory, **_fields(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadedDirectory(LoadedPlans):
    """The plans of a directory of kernels. directory: its path."""

    directory: Path

    def checked(
        self,
        sources: Sources,
        validated: Validated | Unvalidated,
        seconds: Mapping[str, float],
    ) -> CheckedDirectory:
        """Returns the same directory, after its files were compared."""
        known = _fields(self) | {"directory": self.directory, "seconds": seconds}
        return CheckedDirectory(sources=sources, validated=validated, **known)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckedDirectory(LoadedDirectory):
    """A directory of kernels, after its files were compared with those that its plan emits.

    sources: what was compared; validated: what its texts do, or why they were not run.
    """

    sources: Sources
    validated: Validated | Unvalidated


def _fields(compiled: Compiled) -> dict[str, Any]:
    """Returns the fields that all kinds of `Compiled` have, by name."""
    return {one.name: getattr(compiled, one.name) for one in fields(Compiled)}
