"""installed: the installed PyTorch, if it is one that hccc knows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hccc.base.diagnostics import fail

OLDEST = (2, 11)


def _found() -> Any:
    """Imports PyTorch. Raises UserError E456 without one, or with one that is too old or has no
    `torch.distributed`."""
    wanted = f"hccc.torch needs PyTorch {'.'.join(map(str, OLDEST))} or newer"
    remedy = "pip install torch"
    try:
        found = import_module("torch")
    except ImportError as error:
        raise fail("E456", f"{wanted} ({error})", help=remedy) from error
    version = str(found.__version__)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise fail("E456", f"{wanted}, and {version} is installed", help=remedy)
    if not found.distributed.is_available():
        raise fail("E456", f"PyTorch {version} is built without torch.distributed", help=remedy)
    return found


torch = _found()
