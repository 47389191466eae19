"""One of two values; and pairs of which one may take the other's place, as networks that sort write them in
bits.

    l = c ? y : x                      the left one of x and its neighbour y
    r = c ? x : y                      the right one
    z = x ^ (p ? l ^ r : 0)            the neighbour where p holds
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.elementwise import integer_class
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register


def choose(b: Builder, condition, x, y, kind: str):
    """``condition ? x : y`` in a register of class ``kind``."""
    if isinstance(condition, int):
        return x if condition else y
    if x == y:
        return x
    if isinstance(x, Pointer) or isinstance(y, Pointer):
        x, y = whole(b, x), whole(b, y)
    if kind == "h":
        return b.pure("selp.b16 %s, %s, %s, %s;", "h", b.register(x, "h"), b.register(y, "h"), condition)
    if isinstance(x, tuple) and isinstance(y, tuple) and x[1] == y[1]:
        root = b.pure(f"selp.b{64 if kind == 'q' else 32} %s, %s, %s, %s;", kind, x[0], y[0], condition)
        return (root, x[1])
    width, x, y = 64 if kind in "qd" else 32, b.plain(x), b.plain(y)
    found = b.pure(f"selp.b{width} %s, %s, %s, %s;", kind, x, y, condition)
    b.remember(("choice", found), (condition, x, y))
    return found


def exclusive(b: Builder, x: Register, y: Register, width: int) -> Register:
    """x ^ y; a choice where it says which of two values is taken."""
    for kept, change in ((x, y), (y, x)):
        condition, changed, same = b.known(("choice", change)) or (None, None, None)
        pair = b.known(("difference", changed)) if same == 0 else None
        if pair is not None and kept in pair:
            other = pair[0] if kept == pair[1] else pair[1]
            return choose(b, condition, other, kept, integer_class(width))
    x, y = sorted(_sides(b, x, y))
    found = b.pure(f"xor.b{width} %s, %s, %s;", integer_class(width), x, y)
    b.remember(("difference", found), (x, y))
    return found


def _sides(b: Builder, x: Register, y: Register) -> tuple[Register, Register]:
    """Two registers whose bits differ as those of ``x`` and ``y`` do: what these choose between, if one has
    what the other has not."""
    left, right = b.known(("choice", x)), b.known(("choice", y))
    if left is None or right is None or left != (right[0], right[2], right[1]):
        return x, y
    return left[1:] if all(isinstance(part, Register) for part in left) else (x, y)
