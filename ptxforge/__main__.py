"""``python -m ptxforge``: see :mod:`ptxforge.cli`."""

from __future__ import annotations

import sys

from ptxforge.cli import main

if __name__ == "__main__":
    sys.exit(main())
