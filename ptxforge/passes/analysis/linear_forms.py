"""Values as sums: a scalar as a polynomial of scalars, a tensor as a polynomial plus a step along each index.

    %i = addi (splat (muli %pid, 128)), (make_range 0 … 128)           128·pid + 1·i0
    %o = broadcast (muli (expand_dims %i), (splat %stride))            128·pid·stride + stride·i0 + 0·i1

A polynomial maps monomials (products of scalar values that are no sums or products themselves) to integer
coefficients. What a loop carries and advances by the same in every iteration is written through the loop's
own counter: a pointer that begins at ``p`` and grows by ``64·s`` with each ``%k`` of step 1 is
``p + (k - lower)·64·s``. Where ``%k`` has a step of 64 and the pointer grows by 32, that is
``p + (k - lower)·½``: such coefficients are fractions, of which the sum is a whole number.

As everywhere, sums and products that number elements are taken not to wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.ops.arith import AddI, CmpI, MulI, RemSI, Select, SubI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.ir.ops.shape import Broadcast, Constant, ExpandDims, MakeRange, Splat, Trans
from ptxforge.passes.analysis.sign import is_nonnegative

Monomial = tuple[Value, ...]
Polynomial = dict[Monomial, int | Fraction]


class NotLinear(Exception):
    """A value is no such sum; the text says why, for a remark."""


@attrs.frozen
class Wrap:
    """An index along ``dim`` was reduced: from ``bound`` on another one stands for it, modulo ``bound`` or 0.
    The form is that of the index as it was, ``start`` plus the index along ``dim``."""

    dim: int
    start: Polynomial = attrs.field(eq=False)
    bound: Polynomial = attrs.field(eq=False)


@attrs.frozen
class Form:
    """``start`` + Σ ``steps[d]`` · index along d, added to ``base`` if that is a pointer."""

    start: Polynomial
    steps: tuple[Polynomial, ...] = ()
    base: Value | None = None
    wraps: tuple[Wrap, ...] = ()


def constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def add(x: Polynomial, y: Polynomial, factor: int = 1) -> Polynomial:
    """x + factor · y."""
    total = dict(x)
    for monomial, coefficient in y.items():
        total[monomial] = total.get(monomial, 0) + factor * coefficient
    return {monomial: c for monomial, c in total.items() if c}


def share_of(coefficient: int | Fraction, parts: int) -> int | Fraction | None:
    """``coefficient / parts``; ``None`` if that is a fraction whose denominator is no power of 2."""
    share = Fraction(coefficient, parts)
    if share.denominator == 1:
        return share.numerator
    return share if share.denominator & share.denominator - 1 == 0 else None


def multiply(x: Polynomial, y: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, c in x.items():
        for right, d in y.items():
            total = add(total, {tuple(sorted(left + right, key=id)): c * d})
    return total


class LinearForms:
    """The forms of values, computed once each. Where it ``stops_at`` a scalar pointer, this is a base."""

    def __init__(self, stops_at: Callable[[Value], bool] = lambda pointer: False) -> None:
        self._known: dict[Value, Form | NotLinear] = {}
        self._assumed: dict[Value, Form] = {}
        self._stops_at = stops_at

    def of(self, value: Value) -> Form:
        """Raises :class:`NotLinear`."""
        found = self._assumed.get(value) or self._known.get(value)
        if found is None:
            try:
                found = self._compute(value)
            except NotLinear as why:
                found = why
            self._known[value] = found
        if isinstance(found, NotLinear):
            raise found
        return found

    def scalar(self, value: Value) -> Polynomial:
        """A scalar that is no pointer: whatever is no sum or product stands for itself."""
        form = self.of(value)
        if form.base is not None:
            raise NotLinear("a pointer is used as a number")
        return form.start

    def _compute(self, value: Value) -> Form:
        is_tensor = isinstance(value.type, T.TensorType)
        if isinstance(value, BlockArgument):
            if is_tensor:
                raise NotLinear("a loop carries the tile of addresses")
            return self._argument(value)
        if value.defining_op.is_counted and not is_tensor:
            return self._result(value.defining_op, value)
        if isinstance(value.type, T.PointerType) and self._stops_at(value):
            return _itself(value)
        rule = _RULES.get(type(value.defining_op))
        if rule is not None:
            return rule(self, value.defining_op)
        if is_tensor:
            raise NotLinear(f"addresses are computed by '{value.defining_op.name}'")
        return _itself(value)

    def _argument(self, value: BlockArgument) -> Form:
        loop = value.block.parent_op
        if loop is None or not loop.is_counted or value.index == 0:
            return _itself(value)
        advance = self._advance(loop, value, loop.next_of(value))
        if advance is None:
            return _itself(value)
        start = self.of(loop.first_of(value))
        return attrs.evolve(start, start=add(start.start, advance))

    def _result(self, loop: For, value: Value) -> Form:
        """What a loop's carried value is in the end, if the number of iterations is known well enough."""
        argument = loop.carried[value.index]
        advance = self._advance(loop, argument, loop.next_of(argument))
        if advance is None:
            return _itself(value)
        if not self.ends_exactly(loop):
            return _itself(value)
        upper = self.scalar(loop.upper)
        start = self.of(loop.initial[value.index])
        total: Polynomial = {}
        for monomial, coefficient in advance.items():
            rest = list(monomial)
            times = constant(1)
            while loop.induction in rest:
                rest.remove(loop.induction)
                times = multiply(times, upper)
            total = add(total, multiply(times, {tuple(rest): coefficient}))
        return attrs.evolve(start, start=add(start.start, total))

    def ends_exactly(self, loop: For) -> bool:
        """Whether the counter surely ends at the upper bound, which is not below the lower one."""
        lower, upper, step = map(self.scalar, (loop.lower, loop.upper, loop.step))
        if set(step) != {()}:
            return False
        extent = add(upper, lower, -1)
        grows = all(c > 0 and all(map(is_nonnegative, monomial)) for monomial, c in extent.items())
        is_multiple = not any(c % step[()] for c in extent.values())
        return is_multiple and (grows or (not lower and is_nonnegative(loop.upper)))

    def _advance(self, loop: For, value: BlockArgument, following: Value) -> Polynomial | None:
        """What is added to a carried value until the iteration that ``loop``'s counter says."""
        self._assumed[value] = _itself(value)
        try:
            form = self.of(following)
        except NotLinear:
            return None
        finally:
            del self._assumed[value]
            self._forget(loop)
        own = _itself(value)
        if form.base is not own.base:
            return None
        step = add(form.start, own.start, -1)
        if any(is_inside(v, loop) for monomial in step for v in monomial):
            return None
        stride = self.scalar(loop.step)
        if set(stride) != {()}:
            return None
        shares = {monomial: share_of(c, stride[()]) for monomial, c in step.items()}
        if None in shares.values():
            return None
        counted = add({(loop.induction,): 1}, self.scalar(loop.lower), -1)
        return multiply(counted, shares)

    def _forget(self, loop: For) -> None:
        """Forget what was computed inside a loop while its carried values stood for themselves."""
        inside = [v for v in self._known if is_inside(v, loop)]
        for value in inside:
            del self._known[value]


def is_inside(value: Value, loop: For) -> bool:
    """Whether ``loop`` makes a value, or carries it."""
    block, body = value.owner_block, loop.body
    while block is not None:
        if block is body:
            return True
        parent = block.parent_op
        block = parent.parent if parent is not None else None
    return False


def _itself(value: Value) -> Form:
    if isinstance(value.type, T.PointerType):
        return Form({}, (), value)
    return Form({(value,): 1})


# -- rules -----------------------------------------------------------------------------------------------


def _constant(forms: LinearForms, op: Constant) -> Form:
    if not isinstance(op.value, int):
        raise NotLinear("a number that is no integer")
    rank = len(T.shape_of(op.result.type))
    return Form(constant(int(op.value)), ({},) * rank)


def _range(forms: LinearForms, op: MakeRange) -> Form:
    return Form(constant(op.start), (constant(int(op.end - op.start > 1)),))  # a single one is broadcast


def _splat(forms: LinearForms, op: Splat) -> Form:
    form = forms.of(op.value)
    return attrs.evolve(form, steps=({},) * op.result.type.rank)


def _sum(forms: LinearForms, op: Operation, factor: int = 1) -> Form:
    x, y = forms.of(op.operands[0]), forms.of(op.operands[1])
    if y.base is not None:
        raise NotLinear("a pointer is added to something")
    steps = tuple(add(a, b, factor) for a, b in zip(x.steps, y.steps, strict=True))
    return Form(add(x.start, y.start, factor), steps, x.base, x.wraps + y.wraps)


def _difference(forms: LinearForms, op: SubI) -> Form:
    return _sum(forms, op, -1)


def _product(forms: LinearForms, op: MulI) -> Form:
    x, y = forms.of(op.lhs), forms.of(op.rhs)
    if any(x.steps):
        x, y = y, x
    if any(x.steps):
        raise NotLinear("an index is multiplied by an index")
    steps = tuple(multiply(x.start, step) for step in y.steps)
    return Form(multiply(x.start, y.start), steps, None, x.wraps + y.wraps)


def _same(forms: LinearForms, op: Operation) -> Form:
    return forms.of(op.operands[0])


def _expand(forms: LinearForms, op: ExpandDims) -> Form:
    form, axis = forms.of(op.x), op.axis
    steps = (*form.steps[:axis], {}, *form.steps[axis:])
    wraps = tuple(attrs.evolve(w, dim=w.dim + (w.dim >= axis)) for w in form.wraps)
    return attrs.evolve(form, steps=steps, wraps=wraps)


def _transposed(forms: LinearForms, op: Trans) -> Form:
    form = forms.of(op.x)
    wraps = tuple(attrs.evolve(w, dim=op.order.index(w.dim)) for w in form.wraps)
    return attrs.evolve(form, steps=tuple(form.steps[d] for d in op.order), wraps=wraps)


def _remainder(forms: LinearForms, op: RemSI) -> Form:
    """``i % n``: i itself, but for those beyond n."""
    if not isinstance(op.result.type, T.TensorType):
        return _itself(op.result)
    bound = forms.of(op.rhs)
    if any(bound.steps):
        raise NotLinear("an index is reduced modulo an index")
    return _wrapped(forms.of(op.lhs), bound.start)


def _selected(forms: LinearForms, op: Select) -> Form:
    """``i if i < n else 0``: i itself, but for those beyond n."""
    if not isinstance(op.result.type, T.TensorType):
        return _itself(op.result)
    compare = op.condition.defining_op
    if not (isinstance(compare, CmpI) and compare.predicate in ("slt", "ult")):
        raise NotLinear("addresses are selected")
    index, bound, other = forms.of(op.true_value), forms.of(compare.rhs), forms.of(op.false_value)
    if compare.lhs is not op.true_value or other.start or any(other.steps) or any(bound.steps):
        raise NotLinear("addresses are selected")
    return _wrapped(index, bound.start)


def _wrapped(form: Form, bound: Polynomial) -> Form:
    dims = [d for d, step in enumerate(form.steps) if step]
    if len(dims) != 1 or form.steps[dims[0]] != {(): 1} or form.base is not None:
        raise NotLinear("what is reduced is no index of a row or column")
    return attrs.evolve(form, wraps=(*form.wraps, Wrap(dims[0], form.start, bound)))


_RULES: dict[type[Operation], Callable[[LinearForms, Operation], Form]] = {
    Constant: _constant,
    MakeRange: _range,
    Splat: _splat,
    AddI: _sum,
    AddPtr: _sum,
    SubI: _difference,
    MulI: _product,
    ExtSI: _same,
    ConvertLayout: _same,
    Broadcast: _same,
    ExpandDims: _expand,
    Trans: _transposed,
    RemSI: _remainder,
    Select: _selected,
}
