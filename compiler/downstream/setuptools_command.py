"""setuptools_command: a build step of setuptools for the libraries in a project's `[tool.hccc]`.

setuptools calls `finalize` of every package that is installed where it builds; a project without
that table is left alone. The libraries, `lib<name>.so`, go into the packages that the table names,
as package data. They are no Python extensions, so a wheel serves any Python 3 of its platform.
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
from hccc.downstream.table import CollectiveLibrary, TableError, collectives

NAME = "build_hccc"


def finalize(distribution: Any) -> None:
    """Adds the build step if the project asks for libraries; setuptools calls it."""
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


def _add(distribution: Any, wanted: tuple[CollectiveLibrary, ...]) -> None:
    """Adds the command, makes `build` run it, and sets the tag of the wheel."""
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
    """A mix-in of `bdist_wheel`: any Python 3 of this platform can load the wheel."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()  # type: ignore[misc]
        return "py3", "none", platform


class BuildCollectives(Command):  # type: ignore[misc]
    """The build step. An editable installation keeps the libraries in the source tree."""

    description = "compile collectives with hccc ([tool.hccc] of pyproject.toml)"
    user_options: ClassVar[  # pyright: ignore[reportIncompatibleVariableOverride]
        list[tuple[str, str | None, str]]
    ] = []
    collectives: ClassVar[tuple[CollectiveLibrary, ...]] = ()
    editable_mode = False

    def initialize_options(self) -> None:
        """Declares the options that `finalize_options` copies from `build`."""
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        """Copies the output folders from the `build` command."""
        self.set_undefined_options(
            "build", ("build_lib", "build_lib"), ("build_temp", "build_temp")
        )

    def run(self) -> None:
        """Builds the libraries that have changed, and copies all into their packages."""
        packages = self.distribution.packages or []
        for collective in self.collectives:
            if collective.package not in packages:
                known = ", ".join(sorted(packages)) or "none"
                where = f"package of [tool.hccc.collectives.{collective.name}]"
                raise SetupError(f"{where}: there is no {collective.package!r}; there are {known}")
        place = Path(str(self.build_temp)).absolute() / "hccc"
        try:
            built = build_libraries(self.collectives, Path.cwd(), place)
        except BuildError as error:
            raise SetupError(f"hccc: {error}") from None
        for collective, folder in built.items():
            target = self._target(collective)
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.iterdir()):
                shutil.copy2(file, target)

    def _target(self, collective: CollectiveLibrary) -> Path:
        """Returns the folder of the package: in the build, or in the source tree if editable."""
        if self.editable_mode:
            return Path(self.get_finalized_command("build_py").get_package_dir(collective.package))
        return Path(str(self.build_lib)).joinpath(*collective.package.split("."))

    def get_outputs(self) -> list[str]:
        """Lists the files that the step makes, for the targets named; only the build knows default
        ones."""
        ends = {"cpu": "", "cuda": "_cuda", "hip": "_hip"}
        return [
            str(self._target(collective) / f"lib{collective.name}{ends.get(target, '')}.so")
            for collective in self.collectives
            for target in (collective.targets or ("cpu",))
        ]

    def get_output_mapping(self) -> dict[str, str]:
        """Returns no files: an editable installation builds its libraries where it uses them."""
        return {}

    def get_source_files(self) -> list[str]:
        """Lists the files that belong into a source distribution."""
        files = [
            path
            for collective in self.collectives
            for path in (*collective.algorithm, collective.cluster)
        ]
        return [path for path in files if path and Path(path).is_file()]
