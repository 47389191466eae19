"""Steps of random programs of values (``values.py``) that move elements or combine them: reductions and
scans of one value or of several, with functions of the kernel or of the language, sorts, gathers, histograms,
parts that are joined, split, turned; along any dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np

HELPERS = """

@ptxforge.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@ptxforge.jit
def first_least(v1, i1, v2, i2):
    less = (v1 < v2) | ((v1 == v2) & (i1 < i2))
    return tl.where(less, v1, v2), tl.where(less, i1, i2)


@ptxforge.jit
def three(a1, b1, c1, a2, b2, c2):
    return a1 + a2, tl.maximum(b1, b2), c1 ^ c2


@ptxforge.jit
def last(a, b):
    return b


@ptxforge.jit(noinline=True)
def far(x, y):
    if x > y:
        return x - y
    return x * 3 + y


@ptxforge.jit(noinline=True)
def far_sum(x):
    return tl.sum(x, 0)
"""
"""Functions that these steps call; they stand in front of the kernels."""


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _axis(g: Any, value: Any) -> int:
    return int(g.rng.integers(len(value.shape)))


def _tile(g: Any, dtype: str = "", most: int = 1024) -> Any:
    """A tile of numbers, of ``dtype`` if that is given; floats are no NaN."""
    value = g.choose(lambda v: v.shape and (v.is_int or v.is_float) and np.prod(v.shape) <= most)
    if value is None:
        value = g.add(f"tl.full({g.shape}, 3, tl.int32)", "int32", g.shape)
    if dtype:
        return g.converted(value, dtype)
    if value.is_float:
        return g.add(
            f"tl.where({value.name} == {value.name}, {value.name}, 1.0).to(tl.{value.dtype})",
            value.dtype,
            value.shape,
        )
    return value


def reduce(g: Any) -> None:
    value = _tile(g)
    axis, v = _axis(g, value), value.name
    names = ["max", "min", "max", "min", *(["sum", "xor_sum", "sum", "reduce_or"] if value.is_int else [])]
    name, keep = g.pick(names), g.chance(0.3)
    shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :]) if keep else _without(value.shape, axis)
    if g.chance(0.2):
        axis, keep, shape = None, False, ()
    g.add(
        f"tl.{name}({v}, {axis}{', keep_dims=True' if keep else ''}).to(tl.{value.dtype})", value.dtype, shape
    )


def best(g: Any) -> None:
    value = _tile(g)
    axis, v = _axis(g, value), value.name
    name = g.pick(("argmax", "argmin"))
    if g.chance(0.5):
        g.add(f"tl.{name}({v}, {axis})", "int32", _without(value.shape, axis))
        return
    one, at = g.fresh("b"), g.fresh("b")
    g.emit(f"{one}, {at} = tl.{name[3:]}({v}, {axis}, return_indices=True)")
    g.add(f"{at} + 0", "int32", _without(value.shape, axis))
    g.add(f"{one}.to(tl.{value.dtype})", value.dtype, _without(value.shape, axis))


def scan(g: Any) -> None:
    value = _tile(g)
    if value.is_float:
        value = g.converted(value, "int32")
    axis, turned = _axis(g, value), g.pick(("", ", reverse=True"))
    how = g.pick((f"tl.cumsum({value.name}, {axis}{turned})", f"tl.cumprod({value.name}, {axis}{turned})",
                  f"tl.associative_scan({value.name}, {axis}, last{turned})"))  # fmt: skip
    g.add(f"({how}).to(tl.{value.dtype})", value.dtype, value.shape)


def several(g: Any) -> None:
    """A reduction or a scan of two or three values."""
    value = _tile(g, g.pick(("int32", "int64", "uint32", "int16")))
    axis, v, d = _axis(g, value), value.name, value.dtype
    names = [g.fresh("t") for _ in range(3)]
    if g.chance(0.4):
        call, names = f"({v}, {v} * 5 + 1), {axis}, affine", names[:2]
    elif g.chance(0.5):
        place = f"({v} * 0 + {7} - ({v} & 3)).to(tl.{d})"
        call, names = f"({v}, {place}), {axis}, first_least", names[:2]
    else:
        call = f"({v}, {v} ^ 5, {v} * 3), {axis}, three"
    name = "associative_scan" if "affine" in call or g.chance(0.5) else "reduce"
    turned = g.pick(("", ", reverse=True")) if name == "associative_scan" else ""
    g.emit(f"{', '.join(names)} = tl.{name}({call}{turned})")
    shape = value.shape if name == "associative_scan" else _without(value.shape, axis)
    for one in names:
        g.add(f"{one}.to(tl.{d})", d, shape)


def sort(g: Any) -> None:
    value = _tile(g, most=256)
    last, v = value.shape[-1], value.name
    if last < 2:
        return reduce(g)
    down = g.pick((", descending=True", "", ", descending=False"))
    if value.is_float or value.bits > 8 and g.chance(0.3):
        k = g.pick([n for n in (1, 2, 4, 8) if n <= last])
        shape = (*value.shape[:-1], k)
        g.add(
            f"tl.topk({v}, {k}{g.pick(('', ', descending=False'))}).to(tl.{value.dtype})", value.dtype, shape
        )
    else:
        g.add(f"tl.sort({v}{down})", value.dtype, value.shape)


def move(g: Any) -> None:
    """Elements in another order."""
    value = g.choose(lambda v: v.shape and np.prod(v.shape) <= 2048)
    v, d, shape = value.name, value.dtype, value.shape
    rank, kind = (
        len(shape),
        g.pick(("permute", "reshape", "flip", "gather", "interleave", "split", "cat", "turn")),
    )
    if kind == "permute" and rank > 1:
        order = [int(n) for n in g.rng.permutation(rank)]
        g.add(f"tl.permute({v}, {order})", d, tuple(shape[n] for n in order))
    elif kind == "reshape" and rank > 1:
        flat = int(np.prod(shape))
        rows = g.pick([n for n in (1, 2, 4, 8, 16) if flat % n == 0])
        one = g.add(f"tl.reshape({v}, ({rows}, {flat // rows}))", d, (rows, flat // rows))
        g.add(f"tl.reshape(tl.trans({one.name}), {shape})", d, shape)
    elif kind == "flip":
        g.add(f"tl.flip({v}, {_axis(g, value)})", d, shape)
    elif kind == "gather":
        axis = _axis(g, value)
        index = g.choose(lambda w: w.is_int and w.shape == shape)
        if index is None:
            return reduce(g)
        index = f"{index.name} & {min(shape[axis] - 1, 127 if index.bits == 8 else 1023)}"
        g.add(f"tl.gather({v}, ({index}).to(tl.int32), {axis})", d, shape)
    elif kind == "interleave" and np.prod(shape) <= 512:
        other = g.pair(value)
        if other.shape == shape:
            g.add(f"tl.interleave({v}, {other.name})", d, (*shape[:-1], 2 * shape[-1]))
    elif kind == "split" and shape[-1] > 1:
        half = (*shape[:-1], shape[-1] // 2)
        one, other = g.fresh("p"), g.fresh("p")
        g.emit(f"{one}, {other} = tl.split(tl.reshape({v}, {(*half, 2)}))")
        g.add(f"tl.reshape({g.pick((one, other))}, {half})", d, half)
    elif kind == "cat" and rank == 1 and np.prod(shape) <= 512:
        g.add(f"tl.cat({v}, {v}, can_reorder={g.chance(0)})", d, (2 * shape[0],))
    elif rank > 1:
        g.add(
            f"tl.trans({v})" if rank == 2 else f"tl.permute({v}, (0, 2, 1))",
            d,
            shape[::-1] if rank == 2 else (shape[0], shape[2], shape[1]),
        )


def spread(g: Any) -> None:
    """A part of a dimension again in all of it."""
    value = g.choose(lambda v: v.shape and v.shape != g.shape and len(v.shape) == len(g.shape) - 1)
    if value is None:
        return reduce(g)
    for axis in range(len(g.shape)):
        if _without(g.shape, axis) == value.shape:
            text = f"tl.broadcast_to(tl.expand_dims({value.name}, {axis}), {g.shape})"
            g.add(text, value.dtype, g.shape, value.is_product)
            return
    return reduce(g)


def count(g: Any) -> None:
    value = _tile(g, "int32")
    bins = g.pick((2, 8, 16, 64, 256))
    mask = g.pick(("", f", mask=tl.ravel({value.name}) > 3"))
    g.add(f"tl.histogram(tl.ravel({value.name}) & {bins - 1}, {bins}{mask})", "int32", (bins,))


def call(g: Any) -> None:
    """A function that is not compiled into its caller, if the compiler has such."""
    value = _tile(g, "int32")
    if g.chance(0.5):
        number = f"tl.sum(tl.ravel({value.name}), 0)"
        g.add(f"far({number}, {g.pick((3, 1000))})", "int32", ())
    else:
        g.add(f"far_sum({value.name})", "int32", value.shape[1:])


def assembly(g: Any) -> None:
    """Inline assembly of packed elements."""
    value = g.choose(lambda v: v.is_int and v.bits in (8, 16) and v.shape)
    if value is None:
        return reduce(g)
    pack = 32 // value.bits
    text = g.pick(
        ("not.b32 $0, $1;", "xor.b32 $0, $1, 0x5A5A5A5A;", "lop3.b32 $0, $1, $1, 0x33333333, 0x6a;")
    )
    g.add(
        f'tl.inline_asm_elementwise("{text}", "=r,r", [{value.name}], tl.{value.dtype}, True, {pack})',
        value.dtype,
        value.shape,
    )


STEPS = (
    *[reduce] * 3, best, *[scan] * 2, *[several] * 2, sort, *[move] * 4, *[spread] * 2, count, call, assembly,
)  # fmt: skip
