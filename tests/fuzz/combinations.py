"""Steps of random programs of which numpy says what is right (``truths.py``) that combine elements or move
them: reductions and scans of up to four values of several types by functions of their own, histograms,
sorts, gathers, parts that are joined, split, interleaved, turned around; in tiles of any rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.twins import SIGNED, Env, Known, cast, host_type, promoted

HELPERS = """

@ptxforge.jit
def twin_product(a, b):
    return a * b


@ptxforge.jit
def twin_sums(a1, b1, c1, d1, a2, b2, c2, d2):
    return a1 + a2, b1 ^ b2, tl.maximum(c1, c2), d1 | d2


@ptxforge.jit
def twin_matrices(a1, b1, c1, d1, a2, b2, c2, d2):
    return a1 * a2 + b1 * c2, a1 * b2 + b1 * d2, c1 * a2 + d1 * c2, c1 * b2 + d1 * d2


@ptxforge.jit
def twin_affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@ptxforge.jit
def twin_greatest(v1, i1, v2, i2):
    if_first = (v1 > v2) | ((v1 == v2) & (i1 < i2))
    return tl.where(if_first, v1, v2), tl.where(if_first, i1, i2)


@ptxforge.jit
def twin_segments(flag1, sum1, flag2, sum2):
    return flag1 | flag2, tl.where(flag2, sum2, sum1 + sum2)


@ptxforge.jit
def twin_last(a, b):
    return b


@ptxforge.jit
def twin_first(a, b):
    return a
"""
"""Functions that these steps call; they stand in front of the kernels."""


def _segments(left: tuple, right: tuple) -> tuple:
    (flag1, sum1), (flag2, sum2) = left, right
    return flag1 | flag2, np.where(flag2, sum2, sum1 + sum2)


def _greatest(left: tuple, right: tuple) -> tuple:
    (v1, i1), (v2, i2) = left, right
    first = (v1 > v2) | ((v1 == v2) & (i1 < i2))
    return np.where(first, v1, v2), np.where(first, i1, i2)


def _matrices(left: tuple, right: tuple) -> tuple:
    (a1, b1, c1, d1), (a2, b2, c2, d2) = left, right
    return a1 * a2 + b1 * c2, a1 * b2 + b1 * d2, c1 * a2 + d1 * c2, c1 * b2 + d1 * d2


COMBINED: dict[str, tuple[int, bool, Callable]] = {  # how many values, whether they may change places
    "twin_product": (1, True, lambda left, right: (left[0] * right[0],)),
    "twin_sums": (
        4,
        True,
        lambda left, right: (
            left[0] + right[0],
            left[1] ^ right[1],
            np.maximum(left[2], right[2]),
            left[3] | right[3],
        ),
    ),
    "twin_greatest": (2, True, _greatest),
    "twin_matrices": (4, False, _matrices),
    "twin_affine": (2, False, lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1])),
    "twin_segments": (2, False, _segments),
    "twin_last": (1, False, lambda left, right: right),
    "twin_first": (1, False, lambda left, right: left),
}


def _slices(values: tuple, axis: int, number: int) -> tuple:
    return tuple(np.take(value, number, axis) for value in values)


def reduced(values: tuple, axis: int, apply: Callable) -> tuple:
    """One after the other along the axis."""
    slices = [_slices(values, axis, number) for number in range(values[0].shape[axis])]
    return functools.reduce(apply, slices)


def scanned(values: tuple, axis: int, apply: Callable, is_turned: bool) -> tuple:
    """All that come before with each, along the axis."""
    order = range(values[0].shape[axis])
    slices = [_slices(values, axis, number) for number in (reversed(order) if is_turned else order)]
    for number in range(1, len(slices)):
        slices[number] = apply(slices[number - 1], slices[number])
    slices = slices[::-1] if is_turned else slices
    return tuple(np.stack([one[number] for one in slices], axis) for number in range(len(values)))


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape without that dimension."""
    return shape[:axis] + shape[axis + 1 :]


def _axis(g: Any, one: Known) -> int:
    return int(g.rng.integers(len(one.shape)))


def _kept(shape: tuple[int, ...], axis: int | None, keep: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * len(shape) if keep else ()
    return (*shape[:axis], 1, *shape[axis + 1 :]) if keep else without(shape, axis)


def reduce(g: Any) -> None:
    """By a function of the language, along one dimension or all."""
    one = g.choose(lambda v: v.shape and (v.is_int or v.is_float and v.most > 0)) or g.integer()
    axis = None if g.chance(0.2) else _axis(g, one)
    keep = g.chance(0.3)
    names = ["max", "min"] + ([] if one.is_float else ["sum", "sum", "xor_sum", "reduce_or", "twin_product"])
    name = g.pick(names)
    dtype = one.dtype
    if name in ("max", "min") and one.bits < 32:
        dtype = "float32" if one.is_float else "int32"
    if name == "sum" and one.bits < 32:
        dtype = "int32" if one.dtype in SIGNED else "uint32"
    apply = {
        "max": np.max,
        "min": np.min,
        "sum": np.sum,
        "xor_sum": np.bitwise_xor.reduce,
        "reduce_or": np.bitwise_or.reduce,
        "twin_product": np.prod,
    }[name]
    more = ", keep_dims=True" if keep else ""
    text = f"tl.{name}({one.name}, {axis}{more})"
    if name.startswith("twin"):
        text = f"tl.reduce({one.name}, {axis}, {name}{more})"

    shape = _kept(one.shape, axis, keep)

    def value(env: Env) -> np.ndarray:
        data = cast(env[one.name], dtype)
        data, along = (data.reshape(-1), 0) if axis is None else (data, axis)
        return cast(np.asarray(apply(data, axis=along)).reshape(shape), dtype)

    g.define(text, value, dtype, shape, one.most)


def best(g: Any) -> None:
    """Where the largest or the smallest element is, the first of several."""
    one = g.tile()
    axis, name = None if g.chance(0.2) else _axis(g, one), g.pick(("argmax", "argmin"))
    keep = g.chance(0.3)
    apply = np.argmax if name == "argmax" else np.argmin
    shape = _kept(one.shape, axis, keep)
    text = f"tl.{name}({one.name}, {axis}{', keep_dims=True' if keep else ''})"

    def value(env: Env) -> np.ndarray:
        return np.asarray(apply(env[one.name], axis=axis)).astype(np.int32).reshape(shape)

    if g.chance(0.5) or one.bits < 32:
        g.define(text, value, "int32", shape)
        return
    text = f"tl.{name[3:]}({one.name}, {axis}, return_indices=True{', keep_dims=True' if keep else ''})"
    extreme = np.max if name == "argmax" else np.min
    g.define_all(
        text,
        lambda env: (np.asarray(extreme(env[one.name], axis=axis)).reshape(shape), value(env)),
        [one.dtype, "int32"],
        shape,
    )


def running(g: Any) -> None:
    """Sums and products so far, perhaps in a wider type."""
    one = g.integer()
    axis, is_turned, name = _axis(g, one), g.chance(0.4), g.pick(("cumsum", "cumsum", "cumprod"))
    wide = g.pick(("", "", "int64" if one.dtype in SIGNED else "uint64"))
    dtype = wide or one.dtype
    if not wide and name == "cumsum" and one.bits < 32:
        dtype = "int32" if one.dtype in SIGNED else "uint32"
    apply = np.cumsum if name == "cumsum" else np.cumprod
    more = f"{', reverse=True' if is_turned else ''}{f', dtype=tl.{wide}' if wide else ''}"

    def value(env: Env) -> np.ndarray:
        data = cast(env[one.name], dtype)
        data = np.flip(data, axis) if is_turned else data
        data = apply(data, axis=axis, dtype=data.dtype)
        return np.flip(data, axis) if is_turned else data

    g.define(f"tl.{name}({one.name}, {axis}{more})", value, dtype, one.shape)


def several(g: Any) -> None:
    """A reduction or a scan of several values, of types of their own, by a function."""
    name = g.pick(tuple(COMBINED))
    count, commutes, apply = COMBINED[name]
    one = g.integer()
    values = [one]
    while len(values) < count:
        if name in ("twin_sums", "twin_greatest") and g.chance(0.5):
            fitting = [v for v in g.pool if v.is_int and v.shape == one.shape]
            values.append(g.pick(fitting))
        else:
            values.append(_changed(g, one, len(values)))
    if name == "twin_segments":
        flag = g.choose(lambda v: v.dtype == "int1" and v.shape == one.shape)
        three = host_type(one.dtype).type(3)
        flag = flag or g.define(
            f"({one.name} & 3) == 3", lambda env: (env[one.name] & three) == three, "int1", one.shape
        )
        values = [flag, one]
    if name == "twin_greatest":
        values[1] = g.define(_place_text(g, one), lambda env: _places(one), "int32", one.shape)
    if name == "twin_sums" and values[2].bits < 32:
        values[2] = g.cast_to(values[2], "int64")
    axis = _axis(g, one)
    names = ", ".join(v.name for v in values)
    given = names if count == 1 else f"({names})"
    types = [v.dtype for v in values]
    is_reduced = commutes and g.chance(0.5)
    is_turned = not is_reduced and g.chance(0.4)
    function = "reduce" if is_reduced else "associative_scan"
    text = f"tl.{function}({given}, {axis}, {name}{', reverse=True' * is_turned})"

    def found(env: Env) -> tuple:
        data = tuple(env[v.name] for v in values)
        with np.errstate(all="ignore"):
            return reduced(data, axis, apply) if is_reduced else scanned(data, axis, apply, is_turned)

    shape = without(one.shape, axis) if is_reduced else one.shape
    if count == 1:
        g.define(text, lambda env: found(env)[0], types[0], shape)
    else:
        g.define_all(text, found, types, shape)


def _changed(g: Any, one: Known, number: int) -> Known:
    n = host_type(one.dtype).type(number + 4)
    return g.define(f"{one.name} ^ {number + 4}", lambda env: env[one.name] ^ n, one.dtype, one.shape)


def _place_text(g: Any, one: Known) -> str:
    return f"tl.broadcast_to({g.place(one.shape)}, {one.shape})"


def _places(one: Known) -> np.ndarray:
    return np.arange(one.count, dtype=np.int32).reshape(one.shape)


def sort(g: Any) -> None:
    one = g.choose(lambda v: len(v.shape) > 0 and v.dtype != "int1" and v.count <= 512)
    if one is None:
        return reduce(g)
    down, last = g.chance(0.5), one.shape[-1]
    if g.chance(0.5):
        ordered = lambda env: np.sort(env[one.name], -1)[..., :: -1 if down else 1]  # noqa: E731
        g.define(f"tl.sort({one.name}, descending={down})", ordered, one.dtype, one.shape, one.most)
        return
    k = g.pick([n for n in (1, 2, 4, 16, last) if n <= last])
    dtype = one.dtype
    if k < last and one.bits < 32:
        dtype = "float32" if one.is_float else "int32"
    g.define(
        f"tl.topk({one.name}, {k}, descending={down})",
        lambda env: cast(np.sort(env[one.name], -1)[..., :: -1 if down else 1][..., :k], dtype),
        dtype,
        (*one.shape[:-1], k),
        one.most,
    )


def count(g: Any) -> None:
    """A histogram, of what lies outside of it too."""
    one = g.choose(lambda v: v.dtype in ("int32", "uint32", "int64", "int8", "uint8", "int16") and v.shape)
    if one is None:
        return reduce(g)
    bins = g.pick((1, 2, 8, 32, 128, 512))
    flag = g.choose(lambda v: v.dtype == "int1" and v.shape == one.shape)
    mask = f", mask=tl.ravel({flag.name})" if flag is not None and g.chance(0.5) else ""

    def value(env: Env) -> np.ndarray:
        data = env[one.name].reshape(-1)
        keeps = (data >= 0) & (data.astype(object) < bins).astype(bool)
        if mask:
            keeps = keeps & env[flag.name].reshape(-1)
        return np.bincount(data[keeps].astype(np.int64), minlength=bins).astype(np.int32)

    g.define(f"tl.histogram(tl.ravel({one.name}), {bins}{mask})", value, "int32", (bins,))


def gather(g: Any) -> None:
    one = g.choose(lambda v: len(v.shape) > 0 and v.count <= 1024)
    axis = _axis(g, one)
    sizes = [n for n in (1, 2, 8, 64) if n * one.count // one.shape[axis] <= 1024] + [one.shape[axis]]
    shape = (*one.shape[:axis], g.pick(sizes), *one.shape[axis + 1 :])
    seed, size = g.pick((1, 3, 5, 7)), one.shape[axis]
    linear = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    index = f"tl.broadcast_to((({g.place(shape)}) * {seed} + a) & {size - 1}, {shape})"
    kind = g.pick(("", "", ".to(tl.int64)", ".to(tl.uint8)" if size <= 256 else ""))

    def value(env: Env) -> np.ndarray:
        at = (linear * seed + env["a"]) & (size - 1)
        return np.take_along_axis(env[one.name], at.astype(np.int64), axis)

    g.define(f"tl.gather({one.name}, {index}{kind}, {axis})", value, one.dtype, shape, one.most)


def move(g: Any) -> None:
    """One to three of what only moves elements."""
    for _ in range(g.pick((1, 1, 2, 3))):
        _move(g)


def _move(g: Any) -> None:
    one = g.choose(lambda v: len(v.shape) > 0 and v.count <= 2048)
    rank = len(one.shape)
    text, apply, shape = g.pick((_permuted, _reshaped, _flipped, _joined, _split, _part, _spread, _cat))(
        g, one, rank
    )
    if text:
        g.define(text, apply, one.dtype, shape, one.most)


def _permuted(g: Any, one: Known, rank: int) -> tuple:
    order = tuple(int(n) for n in g.rng.permutation(rank))
    shape = tuple(one.shape[n] for n in order)
    return f"tl.permute({one.name}, {order})", lambda env: env[one.name].transpose(order), shape


def _reshaped(g: Any, one: Known, rank: int) -> tuple:
    left, shape = one.count, []
    for _ in range(g.pick((0, 1, 2, 3))):
        shape.append(g.pick([n for n in (1, 2, 4, 8, 32, 64) if left % n == 0]))
        left //= shape[-1]
    shape.insert(int(g.rng.integers(len(shape) + 1)), left)
    shape = tuple(shape)
    return f"tl.reshape({one.name}, {shape})", lambda env: env[one.name].reshape(shape), shape


def _flipped(g: Any, one: Known, rank: int) -> tuple:
    axis = _axis(g, one)
    return f"tl.flip({one.name}, {axis})", lambda env: np.flip(env[one.name], axis), one.shape


def _joined(g: Any, one: Known, rank: int) -> tuple:
    other = g.choose(lambda v: v.dtype == one.dtype and v.shape == one.shape and v.most <= one.most) or one
    pair = lambda env: np.stack([env[one.name], env[other.name]], -1)  # noqa: E731
    if one.count > 1024 or rank > 3:
        return "", None, ()
    if g.chance(0.5):
        return f"tl.join({one.name}, {other.name})", pair, (*one.shape, 2)
    shape = (*one.shape[:-1], 2 * one.shape[-1])
    return f"tl.interleave({one.name}, {other.name})", lambda env: pair(env).reshape(shape), shape


def _split(g: Any, one: Known, rank: int) -> tuple:
    if one.count < 2:
        return "", None, ()
    axis, half = g.pick((0, 1)), (*one.shape[:-1], one.shape[-1] // 2)
    if one.shape[-1] == 1:
        half = (one.count // 2,)
    text = f"tl.split(tl.reshape({one.name}, {(*half, 2)}))[{axis}]"
    return text, lambda env: env[one.name].reshape(*half, 2)[..., axis], half


def _part(g: Any, one: Known, rank: int) -> tuple:
    axis = _axis(g, one)
    size = one.shape[axis]
    if size < 4:
        return "", None, ()
    part = g.pick(
        ((0, size // 2, 1), (size // 2, size, 1), (1, size // 2 + 1, 1), (0, size, 2), (1, size, 2))
    )
    key = ", ".join(f"{part[0]}:{part[1]}:{part[2]}" if n == axis else ":" for n in range(rank))
    index = tuple(slice(*part) if n == axis else slice(None) for n in range(rank))
    shape = (*one.shape[:axis], size // 2, *one.shape[axis + 1 :])
    return f"{one.name}[{key}]", lambda env: env[one.name][index], shape


def _spread(g: Any, one: Known, rank: int) -> tuple:
    axis, size = int(g.rng.integers(rank + 1)), g.pick((1, 2, 4))
    if rank > 3 or one.count * size > 2048:
        return "", None, ()
    shape = (*one.shape[:axis], size, *one.shape[axis:])
    text = f"tl.broadcast_to(tl.expand_dims({one.name}, {axis}), {shape})"
    return text, lambda env: np.broadcast_to(np.expand_dims(env[one.name], axis), shape).copy(), shape


def _cat(g: Any, one: Known, rank: int) -> tuple:
    other = g.choose(lambda v: v.dtype == one.dtype and v.shape == one.shape and v.most <= one.most) or one
    if one.count > 1024 or rank > 3:
        return "", None, ()
    axis = _axis(g, one)
    shape = (*one.shape[:axis], 2 * one.shape[axis], *one.shape[axis + 1 :])
    text = f"tl.cat({one.name}, {other.name}, dim={axis})"
    return text, lambda env: np.concatenate([env[one.name], env[other.name]], axis), shape


def outer(g: Any) -> None:
    """Two tiles of other shapes that broadcast."""
    one, other = g.integer(), g.choose(lambda v: v.is_int and v.shape)
    try:
        shape = np.broadcast_shapes(one.shape, other.shape)
    except ValueError:
        return best(g)
    dtype = promoted(one.dtype, other.dtype)
    if int(np.prod(shape)) > 2048:
        return best(g)
    g.define(
        f"{one.name} + {other.name}",
        lambda env: cast(env[one.name], dtype) + cast(env[other.name], dtype),
        dtype,
        shape,
    )


STEPS = (
    *[reduce] * 2,
    best,
    *[running] * 2,
    *[several] * 4,
    *[sort] * 2,
    count,
    gather,
    *[move] * 4,
    *[outer] * 2,
)
