"""The combining region of a reduction or scan, applied to many pairs of elements at once."""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.floats import Product, evaluated
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.ir import types as T
from ptxforge.ir.definition import COMMUTATIVE
from ptxforge.ir.ops.reduce import Combining

Columns = list[list]
"""One list of entries per operand, all of one length."""


class Combiner:
    """Lowers the region of ``op``."""

    def __init__(self, ctx: Lowering, op: Combining):
        self.ctx, self.op, self.block = ctx, op, op.combine
        self.elements = [T.element_type(v.type) for v in op.inputs]
        single = op.combined_by
        self.name = "" if single is None else single.name
        self.commutes = single is not None and COMMUTATIVE in single.traits
        self._one_by_one = any(inner.regions for inner in op.combine.operations)

    def __call__(self, left: Columns, right: Columns) -> Columns:
        """``combine(left[i], right[i])`` for every i."""
        count = len(left[0])
        if not count:
            return left
        if self._one_by_one and count > 1:
            parts = [self([[x[i]] for x in left], [[x[i]] for x in right]) for i in range(count)]
            return [[part[k][0] for part in parts] for k in range(len(left))]
        values, arguments = self.ctx.values, self.block.arguments
        for argument, entries in zip(arguments, left + right, strict=True):
            values[argument] = entries
        b, saved = self.ctx.b, self.ctx.b.branch
        b.branch = "bra"  # elements decide, not the program
        self.ctx.block(self.block)
        b.branch = saved
        results = [values[v] for v in self.block.terminator.values]
        return [x * count if len(x) == 1 < count else x for x in results]

    def tree(self, items: list[Columns]) -> Columns:
        """Combine the columns of a list pairwise, neighbours first, in ceil(log2) levels. Postponed products
        are summed in a few chains before that, an ``fma`` each."""
        if isinstance(items[0][0][0], Product):
            items = self._chains(items)
        while len(items) > 1:
            pairs = len(items) // 2
            left = _joined(items[0 : 2 * pairs : 2])
            right = _joined(items[1 : 2 * pairs : 2])
            combined = _cut(self(left, right), pairs)
            items = combined + items[2 * pairs :]
        return items[0]

    def _chains(self, items: list[Columns]) -> list[Columns]:
        b, element, count = self.ctx.b, self.elements[0], self.op.contracted_sums
        sums = [[[evaluated(b, x, element) for x in item[0]]] for item in items[:count]]
        for place, item in enumerate(items[count:]):
            sums[place % count] = self(sums[place % count], item)
        return sums


def _joined(items: list[Columns]) -> Columns:
    return [[x for item in items for x in item[k]] for k in range(len(items[0]))]


def _cut(columns: Columns, parts: int) -> list[Columns]:
    size = len(columns[0]) // parts
    return [[x[i * size : (i + 1) * size] for x in columns] for i in range(parts)]
