"""A loop whose loads could run ahead if its stores wrote elsewhere gets a second version for when they do.

    %r = for %k = %lo to %hi step %c … {                                        (before)
      … store %out, %v; … %x = load %in; … dot … }

    %r = if %apart {                                                            (after)
      %s = for %k = %lo to %hi step %c … {num_stages = 3} { … }
      yield %s
    } else {
      %t = for %k = %lo to %hi step %c … {num_stages = 1} { … }
      yield %t
    }

``%apart`` compares, once in front of the loop, the memory that its iterations may load from with what they
may store to. A kernel is launched with tensors that do not overlap, nearly always, but nothing says so; and a
load that waits for the stores of the iteration before waits for its products, too.

Rules
-----
WANTED      Loops with products and without a ``num_stages`` of their own, which would be a promise, of which
            loads would run ahead (``loads_behind_stores``).
EXTENTS     The addresses of these loads, and of all stores, are linear (``linear_forms``): in the loop's
            counter, and in indices along a tile; with coefficients that the loop does not change. Masks do
            not count, so that the memory compared is too much rather than too little.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, MaxSI, MinSI, MulI, OrI, SubI
from ptxforge.ir.ops.cast import ExtSI, PtrToInt
from ptxforge.ir.ops.control import For, If, Yield
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.linear_forms import LinearForms, NotLinear, Polynomial, is_inside
from ptxforge.passes.analysis.pipelined_loads import loads_behind_stores, may_be_pipelined
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support.target import Target


def version_loops(function: Function, target: Target) -> bool:
    """Make two versions of every loop for which that is worth it."""
    stages = function.attributes.get("num_stages", 3)
    loops = [loop for loop in function.walk(For) if loop.num_stages < 0 and loop.body.walk(Product)]
    changed = False
    for loop in loops if stages > 1 else ():
        if not may_be_pipelined(loop):
            continue
        by_tma = kept(TensorLoads, function)
        by_tma.survey(loop.body.of(Load))
        loads = loads_behind_stores(loop, by_tma.rectangle)
        if loads:
            changed |= _make_two(loop, loads, stages)
    return changed


def _make_two(loop: For, loads: Iterable[Operation], stages: int) -> bool:
    """The loop in two versions, if the memory that it accesses is known well enough."""
    forms = LinearForms()
    try:
        read, written = (
            [_accessed(op.pointer, loop, forms) for op in accesses]
            for accesses in (loads, loop.body.walk(Store))
        )
    except NotLinear:
        return False
    builder = Builder.at(loop)
    sources, destinations = ([_ends(x, loop, builder) for x in accesses] for accesses in (read, written))
    apart = [_are_apart(one, other, builder) for one in sources for other in destinations]
    condition = functools.reduce(functools.partial(builder.value, AndI), apart)
    blocks, types = (Block(), Block()), [result.type for result in loop.results]
    branch = builder.create(If, condition, result_types=types, regions=[*map(Region, blocks)])
    ahead = loop.clone()
    ahead.num_stages, loop.num_stages = stages, 1
    for old, new in zip(loop.results, branch.results, strict=True):
        new.hint = old.hint
        old.replace_all_uses_with(new)
    loop.remove()
    for block, version in zip(blocks, (ahead, loop), strict=True):
        block.append(version)
        Builder(block, location=loop.location).create(Yield, *version.results)
    return True


@attrs.frozen
class _Accessed:
    """What the iterations of a loop access: ``size`` bytes at ``base`` and ``first`` elements further in the
    first iteration; in each later one ``advance`` elements further; and so ``count`` times ``step`` along
    every dimension of a tile, for each pair of ``steps``."""

    base: Value
    size: int
    first: Polynomial
    advance: Polynomial
    steps: tuple[tuple[Polynomial, int], ...]


def _accessed(pointer: Value, loop: For, forms: LinearForms) -> _Accessed:
    """See EXTENTS. Raises :class:`NotLinear`."""
    form = forms.of(pointer)
    if form.base is None or form.wraps or is_inside(form.base, loop):
        raise NotLinear("an address that is not linear")
    first: Polynomial = {}
    advance: Polynomial = {}
    for monomial, coefficient in form.start.items():
        rest = tuple(value for value in monomial if value is not loop.induction)
        part = advance if len(rest) < len(monomial) else first
        if len(rest) < len(monomial) - 1:
            raise NotLinear("an address that is not linear in the loop's counter")
        part[rest] = coefficient
    extents = T.shape_of(pointer.type)
    polynomials = (first, advance, *form.steps)
    if any(is_inside(value, loop) for p in polynomials for monomial in p for value in monomial):
        raise NotLinear("an address with a coefficient that the loop changes")
    size = T.element_type(pointer.type).pointee.bytes
    steps = tuple((step, extent - 1) for step, extent in zip(form.steps, extents, strict=True) if step)
    return _Accessed(form.base, size, first, advance, steps)


def _ends(accessed: _Accessed, loop: For, builder: Builder) -> tuple[Value, Value]:
    """The first address that a loop accesses, and the one behind the last."""
    zero, one = builder.constant(0, T.I64), builder.constant(1, T.I64)
    lower, upper = _wide(loop.lower, builder), _wide(loop.upper, builder)
    advance = _number(accessed.advance, builder)
    first = builder.value(AddI, _number(accessed.first, builder), builder.value(MulI, advance, lower))
    size = builder.constant(accessed.size, T.I64)
    start = builder.value(
        AddI, builder.value(PtrToInt, accessed.base, type=T.I64), builder.value(MulI, first, size)
    )
    last = builder.value(SubI, builder.value(SubI, upper, one), lower)
    reaches = [builder.value(MulI, advance, builder.value(MaxSI, last, zero))]
    for step, count in accessed.steps:
        reaches.append(builder.value(MulI, _number(step, builder), builder.constant(count, T.I64)))
    low, high = start, builder.value(AddI, start, size)
    for reach in reaches:
        in_bytes = builder.value(MulI, reach, size)
        low = builder.value(AddI, low, builder.value(MinSI, in_bytes, zero))
        high = builder.value(AddI, high, builder.value(MaxSI, in_bytes, zero))
    return low, high


def _number(polynomial: Polynomial, builder: Builder) -> Value:
    """A polynomial's value, in 64 bits."""
    total = builder.constant(0, T.I64)
    for monomial, coefficient in polynomial.items():
        term = builder.constant(coefficient, T.I64)
        for value in monomial:
            term = builder.value(MulI, term, _wide(value, builder))
        total = builder.value(AddI, total, term)
    return total


def _wide(value: Value, builder: Builder) -> Value:
    return value if value.type is T.I64 else builder.value(ExtSI, value, type=T.I64)


def _are_apart(one: tuple[Value, Value], other: tuple[Value, Value], builder: Builder) -> Value:
    """Whether two stretches of memory have no byte in common."""
    return builder.value(
        OrI,
        builder.value(CmpI, one[1], other[0], predicate="sle"),
        builder.value(CmpI, other[1], one[0], predicate="sle"),
    )
