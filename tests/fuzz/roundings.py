"""Random arithmetic of floats, each operation rounded by itself, of which numpy says what is right, down to
the sign of zero: sums, products, quotients and roots of numbers, infinities, NaN, subnormal numbers and
zeros of both signs; beside numbers by which a compiler would like to simplify them; comparisons, their
opposites, and choices by them, which are no minima where there is a NaN; conversions between all types of
floats, integers and booleans, to nearest, towards zero and to the largest number; two types in one
operation.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import ml_dtypes
import numpy as np

from tests.fuzz.draw import LaunchedProgram
from tests.fuzz.twins import FLOATS, SIGNED, UNSIGNED, Env, Known, Twin, cast, host_type

SHAPES = ((64,), (256,), (512,), (8, 16), (1,), (2, 64), (4, 4, 8))
TYPES = ("float32", "float32", "float16", "bfloat16", "float64")
TINY = {"float8e4nv": ("float8_e4m3fn", 448.0), "float8e5": ("float8_e5m2", 57344.0)}
BITS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}
EDGES = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    65504.0,
    65520.0,
    448.0,
    464.0,
    480.0,
    57344.0,
    61440.0,
    1e-8,
    -3e-8,
    1e-40,
    -1e-45,
    3.4e38,
    6e-5,
    2.0**-133,
    1.0 + 2.0**-8,
    1.0 + 3 * 2.0**-9,
    2049.0,
    257.0,
)
COMPARED = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Roundings(seed).program()


class _Roundings(Twin):
    def __init__(self, seed: int):
        super().__init__(seed, 85)
        self.shape = self.pick(SHAPES)
        self.warps = self.pick((1, 2, 4, 8))

    def program(self) -> LaunchedProgram:
        self.emit("pid = tl.program_id(0)")
        for _ in range(self.pick((2, 3))):
            self.load(self.pick(TYPES))
        for _ in range(self.pick((5, 8, 12))):
            self.pick(STEPS)(self)
        for one in dict.fromkeys([*self.pool[-5:], *(self.choose() for _ in range(3))]):
            self.keep_value(one)
            if one.is_float:
                self.keep_sign(one)
        made = self.complete("rounding", self.pick(("sm_90a", "sm_80", "sm_89", "sm_120")), 1)
        return attrs.evolve(made, options=made.options | {"enable_fp_fusion": False})

    def keep_sign(self, one: Known) -> None:
        """Whether a number is negative, zeros too; a NaN is not."""
        bits = BITS[one.dtype]
        text = f"({one.name}.to(tl.{bits}, bitcast=True) < 0) & ({one.name} == {one.name})"
        sign = self.define(
            text, lambda env: np.signbit(env[one.name]) & ~np.isnan(env[one.name]), "int1", one.shape
        )
        self.keep_value(sign)

    def load(self, dtype: str) -> Known:
        kind = host_type(dtype)
        count = int(np.prod(self.shape))
        with np.errstate(all="ignore"):
            wild = self.rng.integers(0, 256, count * kind.itemsize).astype(np.uint8).view(kind)
            edges = self.rng.choice(np.array(EDGES), count).astype(kind)
            usual = (self.rng.standard_normal(count) * self.pick((1, 100))).astype(kind)
        kinds = self.rng.integers(0, 3, count)
        data = np.where(kinds == 0, wild, np.where(kinds == 1, edges, usual)).astype(kind)
        with np.errstate(all="ignore"):
            data[np.isnan(data)] = np.nan  # of those that signal numpy makes what it likes
        name = self.keep("x", data)
        shaped = data.reshape(self.shape)
        return self.define(
            f"tl.load({name} + {self.place(self.shape)})", lambda env: shaped, dtype, self.shape
        )

    def float(self, dtype: str = "") -> Known:
        found = self.choose(lambda v: v.is_float and (not dtype or v.dtype == dtype))
        return found or self.load(dtype or self.pick(TYPES))


def _common(one: str, other: str) -> str:
    """The type of two floats, or of a float and an integer."""
    for dtype in ("float64", "float32", "float16"):
        if dtype in (one, other):
            return dtype
    return "bfloat16" if one == other else "float32"


def arithmetic(g: _Roundings) -> None:
    """Two floats, of one type or of two, or a float and an integer."""
    one = g.float()
    other = (
        g.choose(
            lambda v: (v.is_int and v.bits <= 32) or v.is_float if g.chance(0.3) else v.dtype == one.dtype
        )
        or one
    )
    dtype, kind = _common(one.dtype, other.dtype), g.pick(("+", "-", "*"))
    a, b = one.name, other.name
    if g.chance(0.5):
        a, b = b, a
    apply = {"+": np.add, "-": np.subtract, "*": np.multiply}[kind]
    g.define(f"{a} {kind} {b}", lambda env: apply(cast(env[a], dtype), cast(env[b], dtype)), dtype, one.shape)


def with_number(g: _Roundings) -> None:
    """What algebra calls the same is not."""
    one = g.float()
    a, kind, dtype = one.name, host_type(one.dtype).type, one.dtype
    number = g.pick((0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("nan"), 0, 1, -1, 3))
    text = f"float('{number}')" if isinstance(number, float) and not np.isfinite(number) else f"({number})"
    operator = g.pick(("+", "-", "*", "back", "negated", "twice", "gone"))
    if operator == "negated":
        return _of(g, f"{g.pick(('-', '0.0 - ', '-1.0 * '))}{a}", one)
    if operator == "twice":
        return _of(g, f"{a} + {a}", one, lambda x: x + x)
    if operator == "gone":
        return _of(g, f"{a} - {a}", one, lambda x: x - x)
    n = kind(number)
    apply = {"+": lambda x: x + n, "-": lambda x: x - n, "*": lambda x: x * n, "back": lambda x: n - x}[
        operator
    ]
    text = f"{text} - {a}" if operator == "back" else f"{a} {operator} {text}"
    g.define(text, lambda env: np.asarray(apply(env[a])).astype(host_type(dtype)), dtype, one.shape)


def _of(g: _Roundings, text: str, one: Known, apply: Callable | None = None) -> None:
    kind = host_type(one.dtype)
    if apply is None:
        zero = kind.type(0)
        apply = (
            np.negative
            if text.startswith("-v")
            else ((lambda x: zero - x) if text.startswith("0") else (lambda x: x * kind.type(-1)))
        )
    g.define(text, lambda env: np.asarray(apply(env[one.name])).astype(kind), one.dtype, one.shape)


def unary(g: _Roundings) -> None:
    one = g.float(g.pick(("float32", "float64", "")))
    applied = {"tl.abs": np.abs}
    if one.dtype in ("float32", "float64"):
        applied |= {
            "tl.floor": np.floor,
            "tl.ceil": np.ceil,
            "tl.math.trunc": np.trunc,
            "tl.math.rint": np.rint,
        }
    if one.dtype == "float32":
        applied |= {"tl.sqrt_rn": np.sqrt}
    name = g.pick(tuple(applied))
    _of(g, f"{name}({one.name})", one, applied[name])


def quotient(g: _Roundings) -> None:
    one = g.float("float32")
    other = g.choose(lambda v: v.dtype == "float32") or one
    a, b = one.name, other.name
    g.define(f"tl.div_rn({a}, {b})", lambda env: env[a] / env[b], "float32", one.shape)


def extremum(g: _Roundings) -> None:
    one = g.float()
    other = g.choose(lambda v: v.dtype == one.dtype) or one
    name, wins = g.pick(("minimum", "maximum")), g.chance(0.5)
    dtype = "float32" if one.dtype == "bfloat16" else one.dtype
    a, b = one.name, other.name

    def value(env: Env) -> np.ndarray:
        x, y = cast(env[a], dtype), cast(env[b], dtype)
        plain = np.fmin(x, y) if name == "minimum" else np.fmax(x, y)
        zeros = (x == 0) & (y == 0)
        signs = (np.signbit(x) | np.signbit(y)) if name == "minimum" else (np.signbit(x) & np.signbit(y))
        zero = np.where(signs, x.dtype.type(-0.0), x.dtype.type(0.0))
        found = np.where(zeros, zero, plain)
        return np.where(np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), found) if wins else found

    more = ", propagate_nan=tl.PropagateNan.ALL" if wins else ""
    g.define(f"tl.{name}({a}, {b}{more})", value, dtype, one.shape)


def compare(g: _Roundings) -> None:
    """And the opposite, which is another one where there is a NaN."""
    one = g.float()
    other = g.choose(lambda v: v.dtype == one.dtype) or one
    a, b, kind = one.name, other.name, g.pick(tuple(COMPARED))
    apply, is_turned = COMPARED[kind], g.chance(0.5)
    if g.chance(0.3):
        number = g.pick((0.0, -0.0, 1.0, 0.5, float("inf")))
        n = host_type(one.dtype).type(number)
        text = f"{a} {kind} {number}" if np.isfinite(number) else f"{a} {kind} float('inf')"
        value = lambda env: apply(env[a], n)  # noqa: E731
    else:
        text, value = f"{a} {kind} {b}", lambda env: apply(env[a], env[b])
    text = f"~({text})" if is_turned else text
    g.define(text, lambda env: value(env) ^ is_turned, "int1", one.shape)


def select(g: _Roundings) -> None:
    """By a comparison of what is chosen, or by something else."""
    one = g.float()
    other = g.choose(lambda v: v.dtype == one.dtype) or one
    a, b, kind = one.name, other.name, g.pick(tuple(COMPARED))
    flag = g.choose(lambda v: v.dtype == "int1")
    how = g.pick(("own", "own", "turned", "flag", "zero", "abs"))
    zero = host_type(one.dtype).type(0)
    apply = COMPARED[kind]
    if how == "flag" and flag is not None:
        f = flag.name
        text, value = f"tl.where({f}, {a}, {b})", lambda env: np.where(env[f], env[a], env[b])
    elif how == "turned":
        text = f"tl.where(~({a} {kind} {b}), {a}, {b})"
        value = lambda env: np.where(~apply(env[a], env[b]), env[a], env[b])  # noqa: E731
    elif how == "zero":
        text = f"tl.where({a} {kind} 0.0, {a}, 0.0)"
        value = lambda env: np.where(apply(env[a], zero), env[a], zero)  # noqa: E731
    elif how == "abs":
        text = f"tl.where({a} {kind} 0.0, {a}, -{a})"
        value = lambda env: np.where(apply(env[a], zero), env[a], -env[a])  # noqa: E731
    else:
        text = f"tl.where({a} {kind} {b}, {a}, {b})"
        value = lambda env: np.where(apply(env[a], env[b]), env[a], env[b])  # noqa: E731
    g.define(text, value, one.dtype, one.shape)


def logic(g: _Roundings) -> None:
    one = g.choose(lambda v: v.dtype == "int1")
    other = g.choose(lambda v: v.dtype == "int1" and v != one)
    if one is None or other is None:
        return compare(g)
    kind = g.pick("&|^")
    apply = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[kind]
    a, b = one.name, other.name
    g.define(f"{a} {kind} ~{b}", lambda env: apply(env[a], ~env[b]), "int1", one.shape)


def convert(g: _Roundings) -> None:
    one = g.float()
    choices = [dtype for dtype in FLOATS if (one.dtype, dtype) != ("float64", "bfloat16")]
    dtype = g.pick(choices)
    if dtype in ("float16", "bfloat16") and one.dtype == "float32" and g.chance(0.4):
        text = f"{one.name}.to(tl.{dtype}, fp_downcast_rounding='rtz')"
        g.define(text, lambda env: towards_zero(env[one.name], dtype), dtype, one.shape)
        return
    g.cast_to(one, dtype)


def towards_zero(x: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded towards zero; of what is finite, to the largest number at most."""
    near = cast(x, dtype)
    too_far = np.isfinite(x) & (np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64)))
    bits = near.view(np.int16)
    return np.where(too_far, bits - np.int16(1), bits).view(near.dtype)


def tiny(g: _Roundings) -> None:
    """An 8-bit float and back: too large numbers become the largest one."""
    one = g.choose(lambda v: v.is_float and v.dtype != "float64") or g.load("float32")
    name = g.pick(tuple(TINY))
    kind, most = TINY[name]
    back = g.pick(("float32", "float16", "bfloat16"))

    def value(env: Env) -> np.ndarray:
        x = env[one.name].astype(np.float32)
        x = np.where(np.isnan(x), x, np.clip(x, -most, most))
        return x.astype(np.dtype(getattr(ml_dtypes, kind))).astype(host_type(back))

    g.define(f"{one.name}.to(tl.{name}).to(tl.{back})", value, back, one.shape)


def to_integer(g: _Roundings) -> None:
    """Towards zero, of what the integer's type holds."""
    one = g.float()
    dtype = g.pick((*SIGNED, *UNSIGNED))
    info = np.iinfo(host_type(dtype))
    low, high = max(info.min, -30000), min(info.max, 30000)
    kind = host_type(one.dtype).type
    low, high = float(kind(low)), float(kind(high)) if float(kind(high)) <= high else float(kind(high)) / 2
    if low < info.min:
        low /= 2
    a = one.name
    text = f"tl.where(({a} > {low}) & ({a} < {high}), {a}, 3.0).to(tl.{dtype})"
    inside = lambda x: np.where((x > kind(low)) & (x < kind(high)), x, kind(3))  # noqa: E731
    g.define(text, lambda env: inside(env[a]).astype(host_type(dtype)), dtype, one.shape)


def to_boolean(g: _Roundings) -> None:
    one = g.float()
    g.define(f"{one.name}.to(tl.int1)", lambda env: env[one.name] != 0, "int1", one.shape)


def from_integer(g: _Roundings) -> None:
    """Integers of any width, whose last bits a float has no room for."""
    dtype = g.pick((*SIGNED, *UNSIGNED))
    kind = host_type(dtype)
    info = np.iinfo(kind)
    data = g.rng.integers(info.min, info.max, int(np.prod(g.shape)), kind, endpoint=True)
    data[:: g.pick((2, 3))] >>= kind.type(g.pick((0, kind.itemsize * 4)))
    name, shaped = g.keep("x", data), data.reshape(g.shape)
    g.define(f"tl.load({name} + {g.place(g.shape)})", lambda env: shaped, dtype, g.shape)
    one = g.pool[-1]
    g.cast_to(one, g.pick(("float32", "float64", "float16") if one.bits > 8 else FLOATS))


def extreme_of_all(g: _Roundings) -> None:
    """A reduction, in which a number wins against a NaN."""
    one = g.float()
    axis, name = int(g.rng.integers(len(one.shape))), g.pick(("max", "min"))
    dtype = "float32" if one.bits < 32 else one.dtype
    apply = np.fmax if name == "max" else np.fmin
    shape = one.shape[:axis] + one.shape[axis + 1 :]

    def value(env: Env) -> np.ndarray:
        found = apply.reduce(cast(env[one.name], dtype), axis=axis)
        return np.asarray(found + found.dtype.type(0))  # of zeros of both signs any one

    found = g.define(f"tl.{name}({one.name}, {axis}) + 0.0", value, dtype, shape)
    g.pool.remove(found)
    g.keep_value(found)


def carried(g: _Roundings) -> None:
    """A sum of products that a loop carries, each rounded."""
    one, n = g.float(), g.pick((0, 1, 3))
    copy = g.define(
        f"{one.name} + 0.0",
        lambda env: np.asarray(env[one.name] + host_type(one.dtype).type(0)),
        one.dtype,
        one.shape,
    )
    factor = g.pick((1.5, -0.75, 0.1))
    k, a, number = g.fresh("k"), copy.name, host_type(one.dtype).type(factor)
    g.emit(f"for {k} in tl.range(0, {g.number(g.fresh('n'), n)}):", f"    {a} = {a} * {factor} + {one.name}")

    def act(env: Env) -> None:
        with np.errstate(all="ignore"):
            for _ in range(n):
                env[a] = np.asarray(env[a] * number + env[one.name])

    g.acts.append(act)


STEPS = (
    *[arithmetic] * 4,
    *[with_number] * 4,
    unary,
    unary,
    quotient,
    *[extremum] * 3,
    *[compare] * 2,
    *[select] * 4,
    logic,
    *[convert] * 3,
    *[tiny] * 2,
    *[to_integer] * 2,
    to_boolean,
    *[from_integer] * 2,
    extreme_of_all,
    carried,
)
