"""Scalars that the threads of a program may have different values of.

A scalar is one number for the whole program, and so is a condition: every thread takes the same side. But
inline assembly may read what each thread has for itself (``%tid.x``), and its text may do what gives each
thread another result. What is computed of that may vary, too.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.support.worklist import each_once


def varying(function: Function) -> frozenset[Value]:
    """The values that may differ between threads. All that a loop carries may, where one value of it does."""
    sources = [op for op in function.walk(InlineAsm) if op.varies]
    work = [v for op in sources for v in op.results if not isinstance(v.type, T.TensorType)]
    found = []
    for value in each_once(work):
        found.append(value)
        for user in value.users:
            work.extend(_changed_by(user))
    return frozenset(found)


def _changed_by(user: Operation) -> list[Value]:
    """What may differ as an operand of ``user`` does."""
    op = user.parent_op if user.is_terminator else user
    if op is None:
        return []
    return [*op.results, *(argument for region in op.regions for argument in region.block.arguments)]
