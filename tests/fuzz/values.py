"""Random values: all element types at the edges of what they hold (least and largest numbers, NaN,
infinities, subnormal numbers, ties), through all operations on elements that are exact, conversions,
divisions by numbers that are known or not; and through what moves elements or combines them
(``orders.py``), in one dimension to three, in clusters or not.
"""

from __future__ import annotations

import attrs
import numpy as np

from tests.fuzz import orders
from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

SHAPES = (
    (64,),
    (128,),
    (256,),
    (512,),
    (1024,),
    (8, 16),
    (4, 64),
    (32, 32),
    (64, 2),
    (16, 4, 8),
    (2, 32, 4),
    (8, 8, 8),
)
INTEGERS = ("int8", "int16", "int32", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float32", "float64")
TINY = ("float8e4nv", "float8e5")
"""Types that are only loaded, stored and converted."""
STORED = {"float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2", "int1": "bool"}
"""Names of element types that are others in numpy."""


@attrs.frozen
class Value:
    """A variable: its name, element type, shape (``()`` for a scalar). ``is_product``: a sum with it might be
    rounded once (``fma``) instead of twice."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_product: bool = False

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def is_signed(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def bits(self) -> int:
        return int(self.dtype.lstrip("uint"))


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return Values(seed).program()


class Values(Writer):
    """Writes programs of values."""

    def __init__(self, seed: int):
        super().__init__(seed, 77)
        self.shape = self.pick(SHAPES)
        self.warps = self.pick((1, 2, 4, 4, 8))
        self.grid = 1
        self.pool: list[Value] = []

    def program(self) -> LaunchedProgram:
        for axis, length in enumerate(self.shape):
            self.emit(f"{'ijh'[axis]} = tl.arange(0, {length})")
        for _ in range(self.pick((2, 3, 4))):
            self.load(self.shape)
        self.load(())
        for _ in range(self.pick((4, 8, 12))):
            self.pick(STEPS)(self)
        for value in dict.fromkeys([*self.pool[-4:], *(self.choose() for _ in range(3))]):
            self.store(value)
        target = self.pick(("sm_90a", "sm_90a", "sm_80", "sm_89", "sm_120"))
        ctas = self.pick((1, 1, 1, 2, 4)) if target == "sm_90a" else 1
        return self.finish("value", target, ctas)

    def add(self, text: str, dtype: str, shape: tuple[int, ...], is_product: bool = False) -> Value:
        """A new variable with this value, in the pool."""
        value = Value(self.let(text), dtype, shape, is_product)
        self.pool.append(value)
        return value

    def choose(self, test=lambda value: True) -> Value | None:
        """A variable for which ``test`` holds, later ones preferred."""
        fitting = [value for value in self.pool if test(value)]
        return fitting[-1 - min(int(self.rng.geometric(0.25)) - 1, len(fitting) - 1)] if fitting else None

    # -- memory ----------------------------------------------------------------------------------------

    def place(self, shape: tuple[int, ...]) -> str:
        terms, stride = [], 1
        for axis in range(len(shape) - 1, -1, -1):
            key = ", ".join(":" if d == axis else "None" for d in range(len(shape)))
            terms.append(f"tl.arange(0, {shape[axis]})[{key}] * {stride}")
            stride *= shape[axis]
        return " + ".join(terms) or "0"

    def load(self, shape: tuple[int, ...]) -> Value:
        dtype = self.pick((*INTEGERS, *FLOATS, *TINY, "int1"))
        name = self.keep("x", self.data(dtype, int(np.prod(shape))))
        text = f"tl.load({name} + {self.place(shape)})"
        return self.add(f"{text}.to(tl.int1)" if dtype == "int1" else text, dtype, shape)

    def data(self, dtype: str, count: int) -> np.ndarray:
        rng = self.rng
        if dtype == "int1":
            return rng.integers(0, 2, count).astype(np.bool_)
        kind = numpy_type(STORED.get(dtype, dtype))
        if dtype in INTEGERS:
            info = np.iinfo(kind)
            some = rng.integers(info.min, info.max, count, dtype=kind, endpoint=True)
            edges = np.array(
                [info.min, info.max, 0, 1, info.max // 2, info.min + 1, 7, info.max - 1], dtype=kind
            )
            small = (
                rng.integers(0, 10, count).astype(kind)
                if self.chance(0.5)
                else -rng.integers(0, 9, count).astype(kind)
            )
        else:
            some = rng.integers(0, 256, count * kind.itemsize).astype(np.uint8).view(kind)
            edges = np.array(
                [
                    0.0,
                    -0.0,
                    np.inf,
                    -np.inf,
                    np.nan,
                    1.0,
                    -1.5,
                    2.5,
                    65504,
                    65520,
                    448,
                    464,
                    1e-8,
                    2.0**31,
                    -(2.0**63),
                ]
            )
            with np.errstate(all="ignore"):
                edges = edges.astype(kind)
            small = (rng.integers(-40, 41, count) / 4).astype(kind)
        kinds = rng.integers(0, 3, count) if self.chance(0.7) else np.full(count, 2)
        return np.where(kinds == 0, some, np.where(kinds == 1, rng.choice(edges, count), small)).astype(kind)

    def store(self, value: Value) -> None:
        dtype, text = value.dtype, value.name
        out = self.keep(
            "o", np.zeros(max(1, int(np.prod(value.shape))), numpy_type(STORED.get(dtype, dtype)))
        )
        self.emit(f"tl.store({out} + {self.place(value.shape)}, {text})")

    # -- operands --------------------------------------------------------------------------------------

    def converted(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        is_product = value.is_product and dtype in FLOATS
        return self.add(f"{value.name}.to(tl.{dtype})", dtype, value.shape, is_product)

    def pair(self, one: Value) -> Value | None:
        """A value of the same type that fits: one that is there, or is converted."""
        other = self.choose(lambda v: v.shape in (one.shape, ()) and v != one) or one
        return self.converted(other, one.dtype)

    def constant(self, value: Value) -> str:
        """A number that the type of ``value`` holds."""
        if not value.is_int:
            return self.pick(("0.0", "1.0", "-1.0", "0.5", "2.0", "3.0", "-0.0", "float('inf')", "1e-3"))
        top = 2 ** (value.bits - 1) if value.is_signed else 2**value.bits
        least = -top if value.is_signed else 0
        near = [
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            10,
            16,
            100,
            127,
            128,
            255,
            1000,
            4096,
            65535,
            65536,
            -1,
            -2,
            -3,
            -8,
            -100,
        ]
        near += [top - 1, top // 2, least, least + 1, int(self.rng.random() * top)]
        return str(self.pick([n for n in near if least <= n < top]))


def integer_arithmetic(g: Values) -> None:
    one = g.choose(lambda v: v.is_int)
    if one is None:
        return convert(g)
    by = g.constant(one) if g.chance(0.4) else g.pair(one).name
    a, bits = one.name, one.bits
    kind = g.pick(
        ("+", "-", "*", "&", "|", "^", "<<", ">>", "//", "%", "//", "%", "min", "max", "back", "cdiv", "both")
    )
    if kind == "cdiv" and by.startswith("-"):
        kind = "//"
    if kind in ("//", "%", "cdiv", "both"):
        by = "3" if by == "0" else by
        by = by if by.lstrip("-").isdigit() else f"tl.where({by} == 0, 1, {by})"
    if kind in ("<<", ">>"):
        by = (
            str(int(g.rng.integers(bits)))
            if by.lstrip("-").isdigit()
            else f"({by} & {g.pick((bits - 1, bits - 1, 2 * bits - 1 if bits < 64 else 63))})"
        )
    texts = {
        "min": f"tl.minimum({a}, {by})", "max": f"tl.maximum({a}, {by})", "back": f"{by} - {a}",
        "cdiv": f"tl.cdiv({a}, {by})", "both": f"{a} // ({by}) * 3 + {a} % ({by})",
    }  # fmt: skip
    text = texts.get(kind, f"{a} {kind} ({by})")
    g.add(f"({text}).to(tl.{one.dtype})", one.dtype, one.shape)


def mixed_arithmetic(g: Values) -> None:
    """Two integers of types of their own."""
    one = g.choose(lambda v: v.is_int)
    other = g.choose(
        lambda v: v.is_int and one is not None and v.shape in (one.shape, ()) and v.dtype != one.dtype
    )
    if other is None:
        return integer_arithmetic(g)
    kind = g.pick(("+", "-", "*", "&", "|", "^", "<", ">", "==", ">="))
    dtype = "int1" if kind in ("<", ">", "==", ">=") else g.pick(INTEGERS)
    g.add(f"({one.name} {kind} {other.name}).to(tl.{dtype})", dtype, one.shape)


def float_arithmetic(g: Values) -> None:
    one = g.choose(lambda v: v.is_float)
    if one is None:
        return convert(g)
    other = g.pair(one)
    a, b, kind = (
        one.name,
        other.name,
        g.pick(("+", "-", "*", "min", "max", "nan", "fma", "div", "sqrt", "clamp")),
    )
    if kind in ("+", "-") and (one.is_product or other.is_product):
        kind = "min"
    if kind in ("div", "sqrt", "fma") and one.dtype != "float32":
        kind = "*"
    texts = {
        "min": f"tl.minimum({a}, {b})", "max": f"tl.maximum({a}, {b})", "div": f"tl.div_rn({a}, {b})",
        "nan": f"tl.{g.pick(('minimum', 'maximum'))}({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
        "fma": f"tl.fma({a}, {b}, {a})", "sqrt": f"tl.sqrt_rn({a})", "clamp": f"tl.clamp({a}, -2.0, 3.5)",
    }  # fmt: skip
    text = texts.get(kind, f"{a} {kind} {b}")
    g.add(
        f"({text}).to(tl.{one.dtype})",
        one.dtype,
        one.shape,
        kind == "*" or one.is_product or other.is_product,
    )


def unary(g: Values) -> None:
    one = g.choose(lambda v: v.is_int or v.is_float)
    if one is None:
        return convert(g)
    a = one.name
    texts = [f"tl.abs({a})"]
    if one.is_int:
        texts += [f"~{a}"]
    if one.is_float or one.is_signed:
        texts += [f"-{a}"]
    if one.dtype in ("float32", "float64"):
        texts += [f"tl.floor({a})", f"tl.ceil({a})", f"tl.math.trunc({a})", f"tl.math.rint({a})"]
    if one.dtype in ("int32", "uint32", "int64", "uint64"):
        texts += [f"tl.umulhi({a}, {g.pair(one).name})"]
    g.add(f"({g.pick(texts)}).to(tl.{one.dtype})", one.dtype, one.shape, one.is_product)


def compare(g: Values) -> None:
    one = g.choose(lambda v: v.is_int or v.is_float)
    if one is None:
        return convert(g)
    other = g.constant(one) if g.chance(0.3) else g.pair(one).name
    g.add(f"{one.name} {g.pick(('<', '<=', '>', '>=', '==', '!='))} {other}", "int1", one.shape)


def select(g: Values) -> None:
    flag = g.choose(lambda v: v.dtype == "int1")
    one = flag and g.choose(lambda v: v.shape == flag.shape and v.dtype not in TINY)
    if not one:
        return compare(g)
    other = g.pair(one)
    g.add(
        f"tl.where({flag.name}, {one.name}, {other.name})",
        one.dtype,
        one.shape,
        one.is_product or other.is_product,
    )


def logic(g: Values) -> None:
    flag = g.choose(lambda v: v.dtype == "int1")
    if flag is None:
        return compare(g)
    other = g.pair(flag)
    text = g.pick(
        (
            f"{flag.name} & {other.name}",
            f"{flag.name} | {other.name}",
            f"{flag.name} ^ {other.name}",
            f"~{flag.name}",
        )
    )
    g.add(text, "int1", flag.shape)


def convert(g: Values) -> None:
    one = g.choose()
    if one.dtype in TINY:
        dtype = g.pick(FLOATS)
    else:
        dtype = g.pick((*INTEGERS, *FLOATS, *(TINY if one.is_float else ()), "int1"))
    if one.dtype in ("float32", "float64") and dtype in ("float16", "bfloat16") and g.chance(0.3):
        g.add(f"{one.name}.to(tl.{dtype}, fp_downcast_rounding='rtz')", dtype, one.shape, one.is_product)
    else:
        g.converted(one, dtype)


def same_bits(g: Values) -> None:
    """An integer's or a float's bits as another type."""
    one = g.choose(lambda v: v.is_int)
    if one is None:
        return convert(g)
    types = {
        8: ("int8", "uint8", *TINY),
        16: ("int16", "float16", "bfloat16"),
        32: ("uint32", "float32"),
        64: ("int64", "float64"),
    }
    dtype = g.pick(types[one.bits])
    g.add(f"{one.name}.to(tl.{dtype}, bitcast=True)", dtype, one.shape)


def number_of_a_kind(g: Values) -> None:
    """The same in a loop or in a branch, where little is known of it."""
    one = g.choose(lambda v: v.dtype in ("int32", "int64", "uint32"))
    if one is None:
        return convert(g)
    value = g.add(f"{one.name} + 0", one.dtype, one.shape)
    n = g.fresh("n")
    g.scalars[n] = g.pick((0, 1, 2, 3))
    g.emit(
        g.pick((f"for k in range({n}):", f"if {n} > 1:", f"for k in tl.range(0, {n}, loop_unroll_factor=2):"))
    )
    v = value.name
    texts = (f"{v} * 3 + 1", f"{v} ^ ({v} >> 3)", f"{v} // 7", f"{v} % 1000 - {v}")
    texts += (f"tl.maximum({v}, {g.constant(one)}) + 1",)
    g.emit(f"    {v} = {g.pick(texts)}")


STEPS = (
    *[integer_arithmetic] * 6, *[mixed_arithmetic] * 2, *[float_arithmetic] * 4, *[unary] * 2, *[compare] * 2,
    *[select] * 2, logic, *[convert] * 4, same_bits, number_of_a_kind, *orders.STEPS,
)  # fmt: skip
