"""Where the benchmark finds hccc and what it needs, without installation and network."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CARRIED = Path(__file__).with_name("carried")  # filled by prepare.py; ignored by git
PACKAGES = CARRIED / "packages"


def find_packages() -> None:
    """Lets `import` find this checkout's hccc, and carried packages where the machine has none."""
    if "hccc" not in sys.modules:
        sys.path.insert(0, str(ROOT / "src"))
    if PACKAGES.is_dir() and str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
