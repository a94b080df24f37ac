"""setuptools_command: builds what `[tool.hccc]` of a project asks for when setuptools builds it.

setuptools calls `finalize` of every package that is installed where it builds; projects without
that table are left as they are. Libraries, `lib<name>.so`, go into the packages that the table
names, as package data. They are no Python extensions, so that a wheel is for any Python 3 of its
platform.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any, ClassVar

from setuptools import Command  # type: ignore[import-untyped]
from setuptools.command.bdist_wheel import bdist_wheel  # type: ignore[import-untyped]
from setuptools.command.build import build  # type: ignore[import-untyped]
from setuptools.errors import SetupError  # type: ignore[import-untyped]

from hccc.downstream.cmake_project import BuildError
from hccc.downstream.cmake_project import build as build_libraries
from hccc.downstream.table import Collective, TableError, collectives

NAME = "build_hccc"


def finalize(distribution: Any) -> None:
    """What setuptools calls: adds the build step where the project asks for libraries."""
    try:
        with open("pyproject.toml", "rb") as file:
            project = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError):  # the latter setuptools itself reports
        return
    if "hccc" not in project.get("tool", {}):
        return
    try:
        wanted = collectives(project)
    except TableError as error:
        raise SetupError(f"pyproject.toml: {error}") from None
    if wanted:
        _add(distribution, wanted)


def _add(distribution: Any, wanted: tuple[Collective, ...]) -> None:
    """The command, run by `build`, and a wheel's tag."""
    commands = distribution.cmdclass
    step = type(NAME, (BuildCollectives,), {"collectives": wanted})
    before = commands.get("build", build)
    steps = [*before.sub_commands, (NAME, None)]
    commands[NAME] = step
    commands["build"] = type("build", (before,), {"sub_commands": steps})
    if not distribution.has_ext_modules():
        base = commands.get("bdist_wheel", bdist_wheel)
        commands["bdist_wheel"] = type("bdist_wheel", (_AnyPython, base), {})
    distribution.has_ext_modules = lambda: True  # the wheel is of one platform


class _AnyPython:
    """Of `bdist_wheel`: any Python 3 of this platform loads what is in it."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()  # type: ignore[misc]
        return "py3", "none", platform


class BuildCollectives(Command):  # type: ignore[misc]
    """The build step. An editable installation has the libraries in the source tree."""

    description = "compile collectives with hccc ([tool.hccc] of pyproject.toml)"
    user_options: ClassVar[  # pyright: ignore[reportIncompatibleVariableOverride]
        list[tuple[str, str | None, str]]
    ] = []
    collectives: ClassVar[tuple[Collective, ...]] = ()
    editable_mode = False

    def initialize_options(self) -> None:
        """What `finalize_options` takes from `build`."""
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        """Where files go, as `build` has it."""
        self.set_undefined_options(
            "build", ("build_lib", "build_lib"), ("build_temp", "build_temp")
        )

    def run(self) -> None:
        """Builds what has changed, and puts it into the packages."""
        packages = self.distribution.packages or []
        for one in self.collectives:
            if one.package not in packages:
                known = ", ".join(sorted(packages)) or "none"
                where = f"package of [tool.hccc.collectives.{one.name}]"
                raise SetupError(f"{where}: there is no {one.package!r}; there are {known}")
        place = Path(str(self.build_temp)).absolute() / "hccc"
        try:
            built = build_libraries(self.collectives, Path.cwd(), place)
        except BuildError as error:
            raise SetupError(f"hccc: {error}") from None
        for one, folder in built.items():
            target = self._target(one)
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.iterdir()):
                shutil.copy2(file, target)

    def _target(self, one: Collective) -> Path:
        """The folder of the package, built or, in editable mode, in the source tree."""
        if self.editable_mode:
            return Path(self.get_finalized_command("build_py").get_package_dir(one.package))
        return Path(str(self.build_lib)).joinpath(*one.package.split("."))

    def get_outputs(self) -> list[str]:
        """The files that it makes; which targets there will be only the build knows."""
        ends = {"cpu": "", "cuda": "_cuda", "hip": "_hip"}
        return [
            str(self._target(one) / f"lib{one.name}{ends.get(target, '')}.so")
            for one in self.collectives
            for target in (one.targets or ("cpu",))
        ]

    def get_output_mapping(self) -> dict[str, str]:
        """None: files of an editable installation are made where they are used."""
        return {}

    def get_source_files(self) -> list[str]:
        """What belongs into a source distribution."""
        files = [path for one in self.collectives for path in (*one.algorithm, one.cluster)]
        return [path for path in files if path and Path(path).is_file()]
