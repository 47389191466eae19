"""From the gpu stage's IR to PTX text.

:func:`emit` is the whole interface. ``lowering.py`` walks the function; how each family of
operations is lowered stands in ``lower/<family>.py``. ``ptx/`` is the floor below: instructions, the builder
that collects them, and the passes over them. ``module.py`` writes what stands around them.
"""

from ptxforge.codegen_ptx.emission import emit
from ptxforge.codegen_ptx.ptx.pipeline import LOWERING, NAMES

PASS_NAMES = (LOWERING, *NAMES)
"""What ``PTXFORGE_DUMP`` and ``PTXFORGE_STOP_AFTER`` may name behind the passes over the IR."""

__all__ = ["PASS_NAMES", "emit"]
