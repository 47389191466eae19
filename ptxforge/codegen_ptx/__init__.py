"""From the gpu stage's IR to PTX text.

:func:`emit` is the whole interface. ``lowering.py`` walks the function, ``builder.py`` collects instructions,
``ptx/`` has the passes over these, ``module.py`` writes what stands around them; how each family of
operations is lowered stands in ``lower_<family>.py``.
"""

from ptxforge.codegen_ptx.emission import emit
from ptxforge.codegen_ptx.ptx.pipeline import NAMES as PASS_NAMES

__all__ = ["PASS_NAMES", "emit"]
