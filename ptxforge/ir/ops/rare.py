"""Selection by a condition that hardly ever holds."""

from __future__ import annotations

from ptxforge.ir.definition import define
from ptxforge.ir.ops.arith import Select


@define("select_rarely")
class SelectRarely(Select):
    """``condition ? true_value : false_value``: what only ``true_value`` needs may be computed in a branch,
    which threads skip for whose elements the condition does not hold."""
