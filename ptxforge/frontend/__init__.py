"""Python source → tile IR.

from ptxforge.frontend import build
function = build(add, {"x": "*fp32:16", "n": "i32"}, {"BLOCK": 1024}, target="sm_90a", num_warps=4)
"""

from ptxforge.frontend.build import build

__all__ = ["build"]
