"""`python -m hccc` is `hccc`."""

from __future__ import annotations

from hccc.cli.main import main

if __name__ == "__main__":
    main()
