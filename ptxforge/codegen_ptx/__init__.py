"""From the gpu stage's IR to PTX text.

:func:`emit` is the whole interface. ``lowering.py`` walks the function, ``builder.py`` collects instructions,
``module.py`` writes the text; how each family of operations is lowered stands in ``lower_<family>.py``.
"""

from ptxforge.codegen_ptx.emission import emit

__all__ = ["emit"]
