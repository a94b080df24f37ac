"""README's console blocks: the commands that they show."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def console_lines() -> list[str]:
    """Every `$ ...` line of README's console blocks, without comments and redirections."""
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.S)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s(#|>|\|).*", "", line) for line in lines]


def commands() -> list[str]:
    """The commands of those lines, which `&&` joins."""
    return [command.strip() for line in console_lines() for command in line.split("&&")]
