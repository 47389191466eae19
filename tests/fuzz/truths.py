"""Random programs of which numpy says what is right: integers of any two types in one operation, numbers
beside them, unsigned comparisons and quotients; masked loads with ``other`` of another type, through places
that run backwards, in strides, far from their base or not at all; reductions and scans of one to four
values with functions of their own, along any dimension of tiles of up to four, of which some have one
element; what moves elements, in chains; carried by loops of any bounds, ``while`` and branches, that write
and read memory in place; of up to sixteen warps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz import combinations, walks
from tests.fuzz.draw import LaunchedProgram
from tests.fuzz.twins import EXACT, FLOATS, SIGNED, UNSIGNED, Env, Known, Twin, cast, host_type, promoted

SHAPES = (
    (1,),
    (2,),
    (4,),
    (64,),
    (128,),
    (512,),
    (1024,),
    (1, 1),
    (2, 1),
    (1, 2),
    (1, 64),
    (64, 1),
    (4, 32),
    (32, 4),
    (16, 64),
    (128, 8),
    (2, 2),
    (1, 1, 1),
    (4, 1, 8),
    (8, 16, 2),
    (2, 32, 8),
    (16, 4, 16),
    (1, 16, 1),
    (2, 2, 2, 2),
    (4, 2, 8, 4),
    (2, 1, 16, 1),
)
TYPES = (*SIGNED, *UNSIGNED, "int32", "int32", "int64", "int1", *FLOATS, "float32")
OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
}  # fmt: skip
FAR = (1 << 31, 3 << 31, -(1 << 33) - 8, (1 << 31) - 4, 300_000_000)


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return Truths(seed).program()


class Truths(Twin):
    """Writes programs of values that numpy knows."""

    def __init__(self, seed: int):
        super().__init__(seed, 82)
        self.shape = self.pick(SHAPES)
        self.warps = self.pick((1, 2, 4, 8, 16, 32) if self.chance(0.3) else (1, 2, 4, 8))
        self.stages = self.pick((1, 2, 3, 4))
        self.grid = self.pick((1, 1, 2))

    def program(self) -> LaunchedProgram:
        self.emit("pid = tl.program_id(0)")
        for name, value in zip("ab", self.rng.integers(0, 5, 2), strict=True):
            self.scalars[name] = int(value)
        for _ in range(self.pick((2, 3))):
            load(self, self.pick(TYPES))
        load(self, "int32")
        for _ in range(self.pick((4, 7, 10))):
            self.pick(STEPS)(self)
        kept = dict.fromkeys([*self.pool[-4:], *(self.choose() for _ in range(3))])
        for one in kept:
            self.keep_value(one)
        target = self.pick(("sm_90a", "sm_90a", "sm_80", "sm_120"))
        return self.complete("truth", target, self.pick((1, 1, 1, 2, 4)) if target == "sm_90a" else 1)

    def integer(self, shape: tuple[int, ...] | None = None) -> Known:
        """A variable of an integer type, of this shape or of that of the program."""
        found = self.choose(lambda v: v.is_int and v.shape == (self.shape if shape is None else shape))
        return found or load(self, "int32", shape)

    def tile(self, most: int = 2048) -> Known:
        """A tile of numbers."""
        found = self.choose(lambda v: len(v.shape) > 0 and v.dtype != "int1" and v.count <= most)
        return found or load(self, "int32")


# -- memory --------------------------------------------------------------------------------------------


def numbers(g: Truths, dtype: str, count: int) -> np.ndarray:
    """Data: integers of all kinds, floats that are small integers."""
    kind = host_type(dtype)
    if dtype == "int1":
        return g.rng.integers(0, 2, count).astype(bool)
    if dtype in FLOATS:
        return g.rng.integers(-8, 9, count).astype(kind)
    info = np.iinfo(kind)
    wild = g.rng.integers(info.min, info.max, count, dtype=kind, endpoint=True)
    edges = g.rng.choice(np.array([info.min, info.max, 0, 1, info.max // 2, info.min + 1, 7], kind), count)
    small = g.rng.integers(0, 10, count).astype(kind)
    kinds = g.rng.integers(0, 3, count) if g.chance(0.6) else np.full(count, g.pick((0, 2, 2)))
    return np.where(kinds == 0, wild, np.where(kinds == 1, edges, small)).astype(kind)


def load(g: Truths, dtype: str = "", shape: tuple[int, ...] | None = None) -> Known:
    """A tile that is loaded, by one of many ways of saying where."""
    dtype = dtype or g.pick(TYPES)
    shape = g.shape if shape is None else shape
    count = int(np.prod(shape))
    linear = np.arange(count).reshape(shape)
    text, base, at = f"({g.place(shape)})", "", linear
    how = g.pick(("rows", "rows", "back", "stride", "zero", "far", "far32", "unsigned"))
    if how == "back":
        text, at = f"({count - 1} - {text})", count - 1 - linear
    elif how == "stride":
        by = g.pick((2, 3, 8))
        text, at = f"({text} * {by} + 1)", linear * by + 1
    elif how == "zero":
        axis = int(g.rng.integers(len(shape))) if shape else 0
        last = int(np.prod(shape[axis:])) if shape else 1
        text, at = f"({text} // {last} * {last})", linear // last * last
    elif how == "far":
        by = g.number(g.fresh("f"), g.pick(FAR))
        base, text = f" - {by}", f"({text}.to(tl.int64) + {by})" if shape else f"({by})"
    elif how == "far32":
        by = g.pick((300_000_000, 2**31 - 1 - count))
        base, text = f" + (-{by})", f"({text} + {by})"
    elif how == "unsigned" and shape:
        text, base = f"({text}.to(tl.uint32) + {2**31})", f" - {2**31}"
    array = g.keep("x", numbers(g, dtype, int(at.max()) + 1))
    mask, keeps, other = _mask(g, dtype, shape)
    way = g.pick(("", "", "", ", volatile=True", ", cache_modifier='.cg'", ", eviction_policy='evict_first'"))
    text = f"tl.load({array}{base} + {text}{mask}{way})"
    if dtype == "int1":
        text = f"{text}.to(tl.int1)"

    def value(env: Env) -> np.ndarray:
        return np.where(keeps(env), env[array][at], other(env)).astype(host_type(dtype))

    return g.define(text, value, dtype, shape, 8 if dtype in FLOATS else 0)


def _mask(g: Truths, dtype: str, shape: tuple[int, ...]) -> tuple[str, Callable, Callable]:
    """The arguments of a masked load, where it keeps what is loaded, and what there is elsewhere."""
    nothing = "", lambda env: np.True_, lambda env: host_type(dtype).type(0)
    if not shape or g.chance(0.5):
        return nothing
    flag = g.choose(lambda v: v.dtype == "int1" and v.shape == shape)
    if flag is None:
        whole = int(np.prod(shape))
        end = g.number(g.fresh("n"), int(g.rng.integers(0, whole + 1)))
        bound = int(g.scalars.get(end, 0)) if end in g.scalars else int(end)
        text = f"({g.place(shape)}) < {end}"
        held = np.arange(whole).reshape(shape) < bound
        keeps = lambda env: held  # noqa: E731
    else:
        text, keeps = flag.name, lambda env: env[flag.name]
    tile = g.choose(lambda v: v.is_int and v.shape in (shape, ()))
    if tile is not None and g.chance(0.4) and dtype not in FLOATS:
        # A pointer to booleans points at bytes.
        byte = "int8" if dtype == "int1" else dtype
        return f", mask={text}, other={tile.name}", keeps, lambda env: cast(cast(env[tile.name], byte), dtype)
    number = g.pick((0, 1, 7, 1.0, 3.0, True)) if dtype != "int1" else g.pick((0, 1, True, False))
    return f", mask={text}, other={number}", keeps, lambda env: cast(np.asarray(number), dtype)


def in_place(g: Truths) -> None:
    """Memory that is read, written, and read again at other places, behind a barrier."""
    one = g.integer()
    count = one.count
    out = g.keep("o", numbers(g, one.dtype, count * g.grid))
    turn = int(g.rng.integers(count))
    linear, place = np.arange(count).reshape(one.shape), f"({g.place(one.shape)})"
    at, where = linear ^ turn, f"{out} + pid * {count} + "
    again = turn * 5 % count
    flipped, other = g.pick(
        ((f"({count - 1} - {place})", count - 1 - linear), (f"({place} ^ {again})", linear ^ again))
    )
    first = lambda env: int(env["pid"]) * count  # noqa: E731

    def write(env: Env) -> None:
        env[out][first(env) + at] = env[out][first(env) + at] * host_type(one.dtype).type(3) + env[one.name]

    is_again = g.chance(0.5)
    for _ in range(1 + is_again):
        g.emit("tl.debug_barrier()")
        at_text = f"{where}({place} ^ {turn})"
        g.emit(f"tl.store({at_text}, tl.load({at_text}) * 3 + {one.name})")
        g.acts.append(write)
    g.emit("tl.debug_barrier()")
    g.define(f"tl.load({where}{flipped})", lambda env: env[out][first(env) + other], one.dtype, one.shape)


# -- elements ------------------------------------------------------------------------------------------


def arithmetic(g: Truths) -> None:
    """Two integers of any types; the result has their common type."""
    one = g.integer()
    other = g.choose(lambda v: (v.is_int or v.dtype == "int1") and v.shape in (one.shape, ())) or one
    kind, dtype = g.pick(("+", "-", "*", "&", "|", "^")), promoted(one.dtype, other.dtype)
    a, b = (one.name, other.name) if g.chance(0.5) else (other.name, one.name)
    apply = OPERATORS[kind]
    g.define(f"{a} {kind} {b}", lambda env: apply(cast(env[a], dtype), cast(env[b], dtype)), dtype, one.shape)


def with_number(g: Truths) -> None:
    """A number takes the type of what stands beside it."""
    one = g.integer()
    info = np.iinfo(host_type(one.dtype))
    number = g.pick(
        [
            n
            for n in (1, 2, 3, 7, 8, 100, 127, 255, 1000, 65535, 2**31 - 1, -1, -2, -128, -1000)
            if info.min <= n <= info.max
        ]
    )
    kind = g.pick(("+", "-", "*", "&", "|", "^", "back", "//", "%", "//", "%", "min", "max"))
    n, dtype = host_type(one.dtype).type(number), one.dtype
    if kind in ("//", "%") and number == -1:
        kind = "+"
    if kind in ("min", "max"):
        dtype = promoted(dtype, "int32")
        number = min(number, 2**31 - 1)
        apply = np.minimum if kind == "min" else np.maximum
        n = np.asarray(number, np.int32)
        text = f"tl.{kind}imum({one.name}, {number})"
        return _two(g, text, apply, one, lambda env: n, dtype)
    text = f"{number} - {one.name}" if kind == "back" else f"{one.name} {kind} {number}"
    more = {"back": lambda a, b: b - a, "//": quotient, "%": remainder}
    apply = (OPERATORS | more)[kind]
    return _two(g, text, apply, one, lambda env: n, dtype)


def _two(g: Truths, text: str, apply: Callable, one: Known, other: Callable, dtype: str) -> None:
    g.define(text, lambda env: apply(cast(env[one.name], dtype), cast(other(env), dtype)), dtype, one.shape)


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero, as C has it; numpy rounds down."""
    down = a // b
    return down + ((down * b != a) & ((a < 0) != (b < 0))).astype(down.dtype)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """With the sign of the dividend."""
    return a - quotient(a, b) * b


def division(g: Truths) -> None:
    """By a tile or a scalar of the same sign, of another width perhaps."""
    one = g.integer()
    family = SIGNED if one.dtype in SIGNED else UNSIGNED
    other = g.choose(lambda v: v.dtype in family and v.shape in (one.shape, ())) or one
    dtype = promoted(one.dtype, other.dtype)
    kind, a, b = g.pick(("//", "%")), one.name, other.name
    by = f"tl.where(({b} == 0) | ({b} == -1), 3, {b})" if family is SIGNED else f"tl.where({b} == 0, 3, {b})"

    def value(env: Env) -> np.ndarray:
        x, y = cast(env[a], dtype), env[b]
        bad = (y == 0) | (y == -1) if family is SIGNED else y == 0
        y = cast(np.where(bad, host_type(other.dtype).type(3), y), dtype)
        return np.asarray((quotient if kind == "//" else remainder)(x, y))

    g.define(f"{a} {kind} {by}", value, dtype, one.shape)


def shift(g: Truths) -> None:
    one = g.integer()
    kind = g.pick(("<<", ">>"))
    by = g.choose(lambda v: v.dtype == one.dtype and v.shape in (one.shape, ()))
    apply = np.left_shift if kind == "<<" else np.right_shift
    bits = host_type(one.dtype).type(one.bits - 1)
    text = f"{one.name} {kind} ({by.name} & {one.bits - 1})"
    _two(g, text, apply, one, lambda env: env[by.name] & bits, one.dtype)


def compare(g: Truths) -> None:
    """Of integers of any types, or of floats; with numbers, too."""
    kind = g.pick(("<", "<=", ">", ">=", "==", "!="))
    apply = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
    }[kind]
    if g.chance(0.25):
        one = g.choose(lambda v: v.is_float and v.shape == g.shape) or load(g, g.pick(FLOATS))
        number = g.pick((0, 1, -2, 0.5))
        text = f"{one.name} {kind} {number}"
        g.define(text, lambda env: apply(env[one.name].astype(float), number), "int1", one.shape)
        return
    one = g.integer()
    other = g.choose(lambda v: v.is_int and v.shape in (one.shape, ())) or one
    dtype = promoted(one.dtype, other.dtype)
    a, b = one.name, other.name
    g.define(
        f"{a} {kind} {b}", lambda env: apply(cast(env[a], dtype), cast(env[b], dtype)), "int1", one.shape
    )


def select(g: Truths) -> None:
    flag = g.choose(lambda v: v.dtype == "int1" and v.shape == g.shape)
    if flag is None:
        return compare(g)
    one = g.integer()
    other = g.choose(lambda v: v.is_int and v.shape in (one.shape, ())) or one
    dtype = promoted(one.dtype, other.dtype)
    f, a, b = flag.name, one.name, other.name
    text = f"tl.where({f}, {a}, {b})"
    return g.define(
        text, lambda env: np.where(env[f], cast(env[a], dtype), cast(env[b], dtype)), dtype, one.shape
    )


def flags(g: Truths) -> None:
    """Booleans, of tiles and of what is not zero."""
    one = g.choose(lambda v: v.dtype == "int1" and v.shape == g.shape)
    other = g.choose(lambda v: (v.is_int or v.dtype == "int1") and v.shape in (g.shape, ()) and v != one)
    if one is None or other is None:
        return compare(g)
    a, b = one.name, other.name
    kind = g.pick(("&", "|", "^", "~", "and", "or", "not"))
    if kind in ("~", "not"):
        text = f"~{a}" if kind == "~" else f"not {a}"
        return g.define(text, lambda env: ~env[a], "int1", one.shape)
    if kind in ("and", "or"):
        apply = np.logical_and if kind == "and" else np.logical_or
        text = f"tl.logical_{kind}({a}, {b})"
        return g.define(text, lambda env: apply(env[a], env[b]), "int1", one.shape)
    apply = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[kind]
    dtype = promoted("int1", other.dtype)
    g.define(f"{a} {kind} {b}", lambda env: apply(cast(env[a], dtype), cast(env[b], dtype)), dtype, one.shape)


def convert(g: Truths) -> None:
    one = g.choose(lambda v: len(v.shape) > 0)
    dtype = g.pick((*SIGNED, *UNSIGNED, "int1"))
    if one.is_float and dtype in UNSIGNED:
        dtype = "int8"
    if one.is_int and g.chance(0.3):
        # Small enough that the type holds it.
        small = g.define(
            f"({one.name} & 7)",
            lambda env: env[one.name] & host_type(one.dtype).type(7),
            one.dtype,
            one.shape,
            7,
        )
        g.cast_to(small, g.pick(FLOATS))
        return
    g.cast_to(one, dtype)


def float_sum(g: Truths) -> None:
    """Floats that stay integers."""
    one = g.choose(lambda v: v.is_float and v.shape == g.shape) or load(g, g.pick(FLOATS))
    other = g.choose(lambda v: v.dtype == one.dtype and v.shape in (one.shape, ()) and v.most > 0) or one
    kind = g.pick(("+", "-", "*"))
    most = one.most * other.most if kind == "*" else one.most + other.most
    if one.most == 0 or most > EXACT[one.dtype] or g.depth:
        return select(g)
    apply = {"+": np.add, "-": np.subtract, "*": np.multiply}[kind]
    a, b = one.name, other.name
    g.define(f"{a} {kind} {b}", lambda env: apply(env[a], env[b]), one.dtype, one.shape, most)


# -- control flow --------------------------------------------------------------------------------------


def loop(g: Truths) -> None:
    """A loop that carries a tile or two; bounds are numbers or arguments, steps may be negative."""
    if g.depth > 1:
        return arithmetic(g)
    carried = [g.integer(), g.integer()]
    made = [_renamed(g, one) for one in dict.fromkeys(carried)]
    k = Known(g.fresh("k"), "int32", ())
    first, end, step = g.pick((0, 1, 5)), g.pick((0, 1, 2, 4, 5)), g.pick((1, 1, 2, -1, -2))
    names = [g.number(g.fresh("n"), value) for value in (first, end)]
    how = g.pick(("", "", ", num_stages=3", ", loop_unroll_factor=2", ", flatten=True", "while"))
    if how == "while":
        first, step = 0, 1
        g.emit(f"{k.name} = 0", f"while {k.name} < {names[1]}:")
    else:
        g.emit(f"for {k.name} in tl.range({names[0]}, {names[1]}, {step}{how}):")

    def write() -> None:
        g.pool += [k, *made]
        for _ in range(g.pick((1, 2, 3))):
            g.pick(STEPS)(g)
        for one in made:
            _change(g, one, k)
        if how == "while":
            g.assign(k, f"{k.name} + 1", lambda env: np.asarray(env[k.name] + np.int32(1)))

    body = g.block(write)

    def act(env: Env) -> None:
        for number in range(first, end, step):
            env[k.name] = np.asarray(number, np.int32)
            for one in body:
                one(env)

    g.acts.append(act)
    g.pool += made


def _renamed(g: Truths, one: Known) -> Known:
    """A copy of a variable, which may change."""
    copy = g.define(f"{one.name} + 0", lambda env: env[one.name], one.dtype, one.shape)
    g.pool.remove(copy)
    return copy


def _change(g: Truths, one: Known, k: Known) -> None:
    other = g.choose(lambda v: v.is_int and v.shape in (one.shape, ())) or k
    a, b, dtype = one.name, other.name, one.dtype
    three = host_type(dtype).type(3)
    g.assign(
        one, f"{a} * 3 + {b}.to(tl.{dtype})", lambda env: np.asarray(env[a] * three + cast(env[b], dtype))
    )


def branch(g: Truths) -> None:
    """A tile that a branch changes, on a scalar that is loaded, reduced or given."""
    if g.depth > 1:
        return arithmetic(g)
    scalar = g.choose(lambda v: v.is_int and v.shape == ())
    name = scalar.name if scalar is not None else g.pick("ab")
    one = _renamed(g, g.integer())
    kind = host_type(scalar.dtype) if scalar is not None else np.dtype(np.int32)
    bit = kind.type(g.pick((1, 2)))
    g.emit(f"if ({name} & {bit}) != 0:")

    def write() -> None:
        g.pool.append(one)
        for _ in range(g.pick((1, 2))):
            g.pick(STEPS)(g)
        _change(g, one, one)

    yes = g.block(write)
    no: list = []
    if g.chance(0.5):
        g.emit("else:")
        no = g.block(write)

    def act(env: Env) -> None:
        for each in yes if env[name].astype(kind) & bit else no:
            each(env)

    g.acts.append(act)
    g.pool.append(one)


STEPS = (
    load,
    load,
    in_place,
    *[arithmetic] * 3,
    *[with_number] * 3,
    *[division] * 2,
    shift,
    *[compare] * 2,
    *[select] * 2,
    flags,
    *[convert] * 2,
    float_sum,
    *[loop] * 2,
    branch,
    *combinations.STEPS,
    *walks.STEPS,
)
