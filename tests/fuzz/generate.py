"""Random kernels as Python source.

``generate(seed)`` gives a :class:`Program`: source, arguments, grid. A program loads tiles, computes with
them for a few steps (elementwise operations, comparisons and selections, casts, broadcasts, reductions,
scans, loops, branches), and stores some of what it has. Some tiles are boxes that block pointers or tensor
descriptors place anywhere (``boxes.py``). Some steps use tensor cores: products of matrices, of
what is there or of operands that a pipelined loop loads, chains of two products, as in attention, and
products under any control flow (``weave.py``), in programs that walk over tiles (``tiles.py``), or several
in an iteration (``several.py``). Loops are left early, tuples carried (``carried.py``).

All executors must agree on it to the last bit, so floats are kept where rounding cannot matter: they hold
integers small enough for their type, and each value knows its ``bound``. Only results of inexact functions
(division, exp, sqrt) are marked as such; they are never compared, cast to integers, or fed back, and are
checked with a tolerance. Integers wrap freely. Every address is inside its array exactly: a load beyond a
mask is an error, not luck.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import ml_dtypes
import numpy as np

from tests.fuzz import exits
from tests.fuzz.boxes import box_product, spill, window
from tests.fuzz.several import several_products
from tests.fuzz.tiles import large_product, walk_over_tiles
from tests.fuzz.weave import weave

INTEGERS = ("int32", "int32", "int64", "int16", "int8", "uint32", "uint8")
FLOATS = ("float32", "float32", "float16", "bfloat16", "float64")
EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**22, "float64": 2**40}
SHORT = {
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint32": "u32",
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
WALKING = (3, 10, 21, 40)
"""Of 50 programs, those that walk over tiles (for which the emulator takes its time), three of them on
sm_90a."""
SEVERAL = 8
"""Of 150 programs, that with a loop of several products for ``wgmma``, on sm_90a, without clusters."""
LARGE = 18
"""Of 150 programs, that which is one product in large tiles, on sm_90a, without clusters."""
NUMPY = {name: np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name) for name in SHORT}


@attrs.frozen
class Tile:
    """A variable of the kernel: its name, element type, shape (``()`` for a scalar).

    A float holds integers of at most ``bound`` (absolute), or is inexact (``bound`` is ``None``).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bound: int | None = 0

    @property
    def is_float(self) -> bool:
        return self.dtype in EXACT

    @property
    def is_int(self) -> bool:
        return self.dtype in SHORT and not self.is_float

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"

    @property
    def is_exact(self) -> bool:
        return self.bound is not None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


@attrs.frozen
class Program:
    """A kernel and a launch. ``arrays`` by parameter (outputs begin with ``o``), ``scalars`` likewise;
    ``inexact`` names the outputs that need a tolerance."""

    seed: int
    source: str
    arrays: dict[str, np.ndarray]
    scalars: dict[str, int]
    grid: int
    num_warps: int
    num_stages: int
    inexact: frozenset[str]

    @property
    def name(self) -> str:
        return f"kernel_{self.seed}"

    @property
    def signature(self) -> dict[str, str]:
        types = {name: f"*{_short(array.dtype)}:16" for name, array in self.arrays.items()}
        return types | {name: "i32" if value % 16 else "i32:16" for name, value in self.scalars.items()}


def _short(dtype: np.dtype) -> str:
    return next(SHORT[name] for name, numpy in NUMPY.items() if numpy == dtype)


HEADER = """\
import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def largest(a, b):
    return tl.maximum(a, b)


@ptxforge.jit
def last_odd(a, b):
    if b % 2 == 0:
        return a
    return b


@ptxforge.jit
def compose(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@ptxforge.jit
def twice_plus(x, y: tl.constexpr):
    z = x * 2
    return z + y
""" + exits.HELPERS
"""What stands in front of the kernels: functions that they call or reduce with."""


def generate(seed: int) -> Program:
    """The program of a seed."""
    return _Generator(seed).program()


class _Generator:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.indent = 1
        self.pool: list[Tile] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.count = 0
        self.grid = self.pick((1, 2, 3))
        self.num_warps = self.pick((1, 2, 4, 4, 8))
        self.num_stages = self.pick((1, 2, 3, 3, 4))
        if self.rng.random() < 0.5:
            self.shape: tuple[int, ...] = (self.pick((16, 32, 64, 128, 256, 1024)),)
        else:
            self.shape = (self.pick((1, 2, 4, 16, 32)), self.pick((1, 4, 8, 16, 32)))
        # The last program may have less to do; when it has not, accesses are unmasked and can be wide.
        self.is_full = self.rng.random() < 0.4
        missing = 0 if self.is_full else int(self.rng.integers(0, self.shape[0]))
        self.rows = self.grid * self.shape[0] - missing
        self.scalars = {"n": self.rows, "s": int(self.rng.integers(0, 5))}

    # -- choices and text ------------------------------------------------------------------------------

    def pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self, prefix: str) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"{prefix}{self.count - 1}"

    def assign(self, text: str, dtype: str, shape: tuple[int, ...], bound: int | None = 0) -> Tile:
        """A new variable with this expression; joins the pool."""
        tile = Tile(self.fresh("v"), dtype, shape, bound)
        self.emit(f"{tile.name} = {text}")
        self.pool.append(tile)
        return tile

    def choose(self, test: Callable[[Tile], bool] = lambda tile: True) -> Tile | None:
        """A variable for which ``test`` holds, later ones preferred."""
        fitting = [tile for tile in self.pool if test(tile)]
        if not fitting:
            return None
        return fitting[-1 - min(int(self.rng.geometric(0.3)) - 1, len(fitting) - 1)]

    # -- the program -----------------------------------------------------------------------------------

    def program(self) -> Program:
        self.prologue()
        for _ in range(int(self.rng.integers(1, 4))):
            self.load()
        for _ in range(int(self.rng.integers(3, 12)) if self.seed % 150 != LARGE else 0):
            self.pick(STEPS)(self)
        if self.seed % 150 == LARGE:
            large_product(self)
        if self.seed % 50 in WALKING:
            walk_over_tiles(self)
        if self.seed % 150 == SEVERAL:
            several_products(self)
        inexact = self.stores()
        parameters = ", ".join([*self.arrays, *self.scalars])
        source = "\n".join([f"def kernel_{self.seed}({parameters}):", *self.lines])
        return Program(
            self.seed, source, self.arrays, self.scalars, self.grid, self.num_warps, self.num_stages,
            frozenset(inexact),
        )  # fmt: skip

    def prologue(self) -> None:
        self.emit("pid = tl.program_id(0)")
        self.emit(f"i = pid * {self.shape[0]} + tl.arange(0, {self.shape[0]})")
        self.emit("m = i < n")
        if len(self.shape) == 2:
            columns = self.shape[1]
            self.emit(f"j = tl.arange(0, {columns})")
            self.emit(f"at = i[:, None] * {columns} + j[None, :]")
            self.emit("ta = i[:, None] + j[None, :] * n")
            self.emit("mm = m[:, None] & (j[None, :] >= 0)")
            self.pool.append(Tile("i", "int32", self.shape[:1]))
            self.pool.append(Tile("at", "int32", self.shape))
        else:
            self.emit("at = i")
            self.emit("mm = m")
            self.pool.append(Tile("at", "int32", self.shape))

    def load(self) -> None:
        name, dtype = f"x{len(self.arrays)}", self.pick(INTEGERS + FLOATS)
        count = self.rows * int(np.prod(self.shape[1:]))
        self.arrays[name] = self.data(dtype, count)
        mask = "" if self.is_full else ", mask=mm, other=0"
        self.assign(f"tl.load({name} + {self.place()}{mask})", dtype, self.shape, 4)

    def place(self) -> str:
        """Offsets of the tile in an array: row by row or, for a matrix, column by column."""
        return self.pick(("at", "at", "ta")) if len(self.shape) == 2 else "at"

    @staticmethod
    def numpy(dtype: str) -> np.dtype:
        return NUMPY[dtype]

    def data(self, dtype: str, count: int) -> np.ndarray:
        if dtype in EXACT:
            return self.rng.integers(-4, 5, count).astype(NUMPY[dtype])
        if self.rng.random() < 0.5:
            return self.rng.integers(0, 20, count).astype(NUMPY[dtype])
        info = np.iinfo(NUMPY[dtype])
        return self.rng.integers(info.min, info.max, count, dtype=NUMPY[dtype], endpoint=True)

    def stores(self) -> list[str]:
        inexact = []
        # The last two values, and one from before.
        chosen = dict.fromkeys([self.pool[-1], self.pool[-2], self.choose()])
        for tile in chosen:
            name = f"o{len(self.arrays)}"
            if tile.is_bool:
                self.emit(f"{tile.name} = {tile.name}.to(tl.int32)")
                tile = attrs.evolve(tile, dtype="int32")
            if not tile.is_exact:
                inexact.append(name)
            self.store(name, tile)
        return inexact

    def store(self, name: str, tile: Tile) -> None:
        """Each program has its own part of the array, as large as the tile."""
        if tile.shape == self.shape:
            count = self.rows * int(np.prod(self.shape[1:]))
            mask = "" if self.is_full else ", mask=mm"
            self.emit(f"tl.store({name} + {self.place()}, {tile.name}{mask})")
        else:
            count = self.grid * tile.size
            self.emit(f"tl.store({name} + {self.offsets(tile.shape)}, {tile.name})")
        self.arrays[name] = np.zeros(count, NUMPY[tile.dtype])

    def offsets(self, shape: tuple[int, ...]) -> str:
        start = f"pid * {int(np.prod(shape))}"
        if not shape:
            return start
        if len(shape) == 1:
            return f"{start} + tl.arange(0, {shape[0]})"
        rows, columns = shape
        return f"{start} + tl.arange(0, {rows})[:, None] * {columns} + tl.arange(0, {columns})[None, :]"

    # -- operands --------------------------------------------------------------------------------------

    def bounded(self, tile: Tile, limit: int) -> Tile:
        """An exact float of at most ``limit``."""
        if tile.bound <= limit:
            return tile
        low = max(1, min(limit, 4))
        text = f"tl.minimum(tl.maximum({tile.name}, -{low}.0), {low}.0).to(tl.{tile.dtype})"
        return self.assign(text, tile.dtype, tile.shape, low)

    def converted(self, tile: Tile, dtype: str) -> Tile:
        """``tile`` as exact ``dtype``; the conversion loses nothing but an integer's high bits."""
        if tile.dtype == dtype:
            return tile
        if dtype in EXACT:
            if tile.is_int:
                return self.assign(f"({tile.name} & 15).to(tl.{dtype})", dtype, tile.shape, 15)
            if tile.is_float:
                tile = self.bounded(tile, EXACT[dtype])
            return self.assign(
                f"{tile.name}.to(tl.{dtype})", dtype, tile.shape, 1 if tile.is_bool else tile.bound
            )
        if tile.is_float:
            tile = self.bounded(tile, 100)
            absolute = f"tl.abs({tile.name})" if dtype.startswith("u") else tile.name
            return self.assign(f"{absolute}.to(tl.{dtype})", dtype, tile.shape)
        return self.assign(f"{tile.name}.to(tl.{dtype})", dtype, tile.shape)

    def pair(self, dtype: str | None = None) -> tuple[Tile, Tile]:
        """Two exact values of one type whose shapes broadcast."""
        one = self.choose(lambda t: t.is_exact and not t.is_bool)
        one = self.converted(one, dtype) if dtype else one
        other = self.choose(lambda t: t.is_exact and _broadcast(one.shape, t.shape) is not None)
        return one, self.converted(other, one.dtype)

    # -- steps -----------------------------------------------------------------------------------------

    def arithmetic(self) -> None:
        one, other = self.pair()
        shape = _broadcast(one.shape, other.shape)
        if one.is_int:
            self.assign(self.integer_expression(one, other), one.dtype, shape)
            return
        half = EXACT[one.dtype] // 2
        one, other = self.bounded(one, half), self.bounded(other, half)
        operator = self.pick(("+", "-", "*", "min", "max"))
        if operator == "*" and one.bound * other.bound > EXACT[one.dtype]:
            one, other = self.bounded(one, 4), self.bounded(other, 4)
        if operator in ("min", "max"):
            text = f"tl.{operator}imum({one.name}, {other.name}).to(tl.{one.dtype})"
            bound = max(one.bound, other.bound)
        else:
            text = f"{one.name} {operator} {other.name}"
            bound = one.bound * other.bound if operator == "*" else one.bound + other.bound
        self.assign(text, one.dtype, shape, bound)

    def integer_expression(self, one: Tile, other: Tile) -> str:
        a, b = one.name, other.name
        bits = int(one.dtype.lstrip("uint"))
        return self.pick((
            f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{a} & {b}", f"{a} | {b}", f"{a} ^ {b}",
            f"tl.minimum({a}, {b})", f"tl.maximum({a}, {b})", f"{a} // (({b} & 7) + 1)",
            f"{a} % (({b} & 15) + 3)", f"{a} << ({b} & {bits - 1})", f"{a} >> ({b} & {bits - 1})",
            f"{a} * 3 + {b}", f"({a} + 5) // 3 - {b}",
        ))  # fmt: skip

    def unary(self) -> None:
        tile = self.choose(lambda t: t.is_exact and not t.is_bool)
        signed = tile.is_float or tile.dtype.startswith("int")
        options = [f"-{tile.name}", f"tl.abs({tile.name})"] if signed else [f"{tile.name} + 1"]
        if tile.is_int:
            options += [f"~{tile.name}", f"{tile.name} & 31", f"{tile.name} >> 1"]
        self.assign(self.pick(options), tile.dtype, tile.shape, tile.bound)

    def compare(self) -> None:
        one, other = self.pair()
        operator = self.pick(("<", "<=", ">", ">=", "==", "!="))
        self.assign(f"{one.name} {operator} {other.name}", "bool", _broadcast(one.shape, other.shape))

    def logic(self) -> None:
        one = self.choose(lambda t: t.is_bool)
        if one is None:
            return self.compare()
        other = self.choose(lambda t: t.is_bool and _broadcast(one.shape, t.shape) is not None)
        operator = self.pick(("&", "|", "^"))
        self.assign(f"{one.name} {operator} {other.name}", "bool", _broadcast(one.shape, other.shape))

    def select(self) -> None:
        flag = self.choose(lambda t: t.is_bool)
        if flag is None:
            return self.compare()
        one, other = self.pair()
        shape = _broadcast(_broadcast(one.shape, other.shape), flag.shape)
        if shape is None:
            return self.compare()
        bound = max(one.bound, other.bound)
        self.assign(f"tl.where({flag.name}, {one.name}, {other.name})", one.dtype, shape, bound)

    def cast(self) -> None:
        tile = self.choose(lambda t: t.is_exact)
        self.converted(tile, self.pick(INTEGERS + FLOATS))

    def expand(self) -> None:
        tile = self.choose(lambda t: len(t.shape) == 1)
        if tile is None or len(self.shape) == 1:
            return self.arithmetic()
        if tile.shape == self.shape[:1] and self.rng.random() < 0.8:
            self.assign(f"{tile.name}[:, None]", tile.dtype, (*tile.shape, 1), tile.bound)
        elif tile.shape == self.shape[1:]:
            self.assign(f"{tile.name}[None, :]", tile.dtype, (1, *tile.shape), tile.bound)
        else:
            self.assign(f"tl.expand_dims({tile.name}, 1)", tile.dtype, (*tile.shape, 1), tile.bound)

    def transpose(self) -> None:
        tile = self.choose(lambda t: len(t.shape) == 2)
        if tile is None:
            return self.unary()
        self.assign(f"tl.trans({tile.name})", tile.dtype, tile.shape[::-1], tile.bound)

    def reshape(self) -> None:
        tile = self.choose(lambda t: len(t.shape) == 2)
        if tile is None or tile.size > 1024:
            return self.unary()
        self.assign(f"tl.reshape({tile.name}, ({tile.size},))", tile.dtype, (tile.size,), tile.bound)

    def join_and_split(self) -> None:
        tile = self.choose(lambda t: t.is_exact and len(t.shape) == 1 and not t.is_bool)
        if tile is None:
            return self.unary()
        name = self.fresh("p")
        self.emit(f"{name} = tl.join({tile.name}, {tile.name} + 1)")
        if self.rng.random() < 0.5:
            self.assign(
                f"tl.reshape({name}, ({2 * tile.size},))", tile.dtype, (2 * tile.size,), tile.bound + 1
            )
            return
        self.emit(f"{name}a, {name}b = tl.split({name})")
        wide = self.bounded(
            Tile(f"{name}b", tile.dtype, tile.shape, tile.bound + 1), EXACT.get(tile.dtype, 2**60)
        )
        self.pool.append(wide)

    def reduce(self) -> None:
        tile = self.choose(lambda t: t.is_exact and t.shape and not t.is_bool)
        axis = int(self.rng.integers(len(tile.shape)))
        shape = tile.shape[:axis] + tile.shape[axis + 1 :]
        name = self.pick(("sum", "max", "min", "argmax", "argmin", "xor_sum" if tile.is_int else "sum"))
        if name.startswith("arg"):
            self.assign(f"tl.{name}({tile.name}, axis={axis})", "int32", shape)
            return
        bound = tile.bound
        if name == "sum" and tile.is_float:
            tile = self.summable(tile, tile.shape[axis])
            bound = tile.bound * tile.shape[axis]
        # Sums of narrow types are wide: back to the type that this generator knows.
        self.assign(f"tl.{name}({tile.name}, axis={axis}).to(tl.{tile.dtype})", tile.dtype, shape, bound)

    def summable(self, tile: Tile, count: int) -> Tile:
        """A float so small that the sum of ``count`` of them is exact."""
        tile = self.bounded(tile, max(1, EXACT[tile.dtype] // count))
        if tile.bound * count > EXACT[tile.dtype]:
            tile = self.converted(tile, "float32")
        return tile

    def scan(self) -> None:
        tile = self.choose(lambda t: t.is_exact and t.shape and not t.is_bool)
        axis = int(self.rng.integers(len(tile.shape)))
        if tile.is_float:
            tile = self.summable(tile, tile.shape[axis])
        bound = tile.bound * tile.shape[axis]
        reverse = self.pick(("", "", ", reverse=True"))
        self.assign(
            f"tl.cumsum({tile.name}, {axis}{reverse}).to(tl.{tile.dtype})", tile.dtype, tile.shape, bound
        )

    def loop(self) -> None:
        """Integers that go round; the trip count is an argument, a constant, or both."""
        one, other = self.pair("int32")
        shape = _broadcast(one.shape, other.shape)
        carried = self.assign(f"{one.name} + {other.name} * 0", "int32", shape)
        header = self.pick((
            "range(s)", "range(1, s + 2)", "range(0, 3)", "range(s, 9, 2)",
            "tl.range(0, s, loop_unroll_factor=2)", "tl.range(0, 6, num_stages=2)", "tl.static_range(3)",
            "range(4, 0, -1)",
        ))  # fmt: skip
        self.emit(f"for k in {header}:")
        self.indent += 1
        c, w = carried.name, other.name
        total = {0: "k", 1: f"tl.sum({c}, axis=0)", 2: f"tl.sum({c}, axis=0)[None, :]"}[len(shape)]
        loaded = "tl.load(x0 + at * 0, mask=at < k, other=0).to(tl.int32)"
        more = loaded if shape == self.shape else "k"
        for _ in range(int(self.rng.integers(1, 3))):
            self.emit(self.pick((
                f"{c} = {c} * 3 + k", f"{c} = {c} ^ ({w} + k)",
                f"{c} = tl.where({w} > k, {c} + {w}, {c} - 1)",
                f"{c} += {more}", f"{c} = tl.maximum({c}, k - {w})", f"{c} = {c} + {total}",
            )))  # fmt: skip
        self.indent -= 1

    def while_loop(self) -> None:
        tile = self.choose(lambda t: t.is_exact and not t.is_bool)
        carried = self.assign(f"{self.converted(tile, 'int32').name} + 1", "int32", tile.shape)
        counter = self.fresh("c")
        self.emit(f"{counter} = 0")
        self.emit(f"while {counter} < s:")
        self.emit(f"    {carried.name} = {carried.name} * 5 - {counter}")
        self.emit(f"    {counter} += {self.pick((1, 2))}")

    def branch(self) -> None:
        one, other = self.pair()
        shape = _broadcast(one.shape, other.shape)
        if shape != one.shape or shape != other.shape:
            return self.arithmetic()
        condition = self.pick(("s > 2", "pid == 0", "n % 2 == 0", "(s > 0) & (pid < 2)"))
        bound = max(one.bound, other.bound)
        result = self.assign(one.name, one.dtype, shape, bound)
        self.emit(f"if {condition}:")
        self.emit(f"    {result.name} = {other.name}")
        if self.rng.random() < 0.5:
            self.emit("else:")
            self.emit(f"    {result.name} = -{one.name}" if not one.dtype.startswith("u") else "    pass")

    # -- products of matrices --------------------------------------------------------------------------

    def product(self) -> None:
        """A matrix product of floats, square so that one value serves as both operands."""
        tile = self.choose(
            lambda t: t.is_exact and len(t.shape) == 2 and min(t.shape) >= 16 and not t.is_bool
        )
        if tile is None:
            return self.arithmetic()
        dtype = self.pick(("float16", "bfloat16", "float32"))
        operand = self.bounded(self.converted(tile, dtype), 15)
        precision = ', input_precision="ieee"' if dtype == "float32" else ""
        text = f"tl.dot({operand.name}, tl.trans({operand.name}){precision})"
        bound = operand.bound**2 * tile.shape[1]
        self.assign(text, "float32", (tile.shape[0], tile.shape[0]), bound)

    def matrix(self, dtype: str, rows: int, columns: int) -> tuple[str, str, str]:
        """An array of its own, in rows or in columns: its name, and the strides of both dimensions."""
        name = f"x{len(self.arrays)}"
        self.arrays[name] = self.data(dtype, rows * columns)
        return (name, str(columns), "1") if self.rng.random() < 0.6 else (name, "1", str(rows))

    def trips(self) -> tuple[str, int]:
        """How often a loop runs: as the kernel says it, and at most."""
        return self.pick((("s", 4), ("s", 4), ("0", 0), ("1", 1), ("2", 2), ("3", 3), ("5", 5)))

    def stages(self) -> str:
        """The depth of a loop's pipeline: its own, or the kernel's."""
        return self.pick(("", "", ", num_stages=1", ", num_stages=2", ", num_stages=3", ", num_stages=4"))

    def tensor_cores(self) -> None:
        """One of the larger pieces: rare, as the emulator takes its time for them."""
        self.pick((
            *[_Generator.matmul] * 3, *[_Generator.attention] * 2, _Generator.chain,
            *[_Generator.scaled] * 2, _Generator.batched, *[box_product] * 2,
        ))(self)  # fmt: skip

    def matmul(self) -> None:
        """A loop along k that loads both operands, as a matrix product does; masks cut k off anywhere.

        It may stand under an ``if`` or in another loop, and find its rows of b through indices that it loads.
        """
        m, n, k = self.pick((16, 32, 64)), self.pick((8, 16, 32, 64)), self.pick((16, 32, 64))
        dtype = self.pick(("float16", "float16", "bfloat16", "int8", "uint8", "float32", "float64"))
        while (m + n) * k * NUMPY[dtype].itemsize > 12 * 1024:  # four of them fit wherever this runs
            k //= 2
        k = max(k, 32 // NUMPY[dtype].itemsize)  # one step of the tensor cores
        count, most = self.trips()
        depth = k * max(most, 1)
        a, am, ak = self.matrix(dtype, self.grid * m, depth)
        b, bk, bn = self.matrix(dtype, depth, n)
        i, j, at, t = (self.fresh(prefix) for prefix in "ijkt")
        self.emit(f"{i} = pid * {m} + tl.arange(0, {m})")
        self.emit(f"{j} = tl.arange(0, {n})")
        self.emit(f"{at} = tl.arange(0, {k})")
        result = {"int8": "int32", "uint8": "int32", "float64": "float64"}.get(dtype, "float32")
        acc = self.assign(f"tl.full(({m}, {n}), 1, tl.{result})", result, (m, n), 1 + 64 * depth)
        around = self.pick((
            "", "", "", "if s > 1:", f"for {t} in range(s // 2):", f"for {t} in range(2):",
            f"while {t} < s - 2:",
        ))  # fmt: skip
        if around:
            if around.startswith("while"):
                self.emit(f"{t} = 0")
            self.emit(around)
            self.indent += 1
        rows = f"{a} + {i}[:, None] * {am} + {at}[None, :] * {ak}"
        if self.rng.random() < 0.25:
            self.indirect_loop(acc.name, dtype, (rows, f"{k} * {ak}"), (b, bk, bn, j), at, k, count, depth)
        else:
            columns = f"{b} + {at}[:, None] * {bk} + {j}[None, :] * {bn}"
            steps = (f"{k} * {ak}", f"{k} * {bk}")
            self.direct_loop(acc.name, dtype, (rows, columns), steps, at, k, count, depth)
        self.indent = 2 if around else 1
        if around.startswith("while"):
            self.emit(f"{t} += 1")
        if around and self.rng.random() < 0.4:
            # What a persistent kernel does: the result of each round goes out, and the next begins anew.
            self.persist(acc, t if around[0] in "fw" else "0")
        self.indent = 1

    def persist(self, acc: Tile, round: str) -> None:
        """Store an accumulator in an array that has room for a few rounds, and set it back."""
        name, (m, n) = f"o{len(self.arrays)}", acc.shape
        self.arrays[name] = np.zeros(self.grid * 3 * acc.size, NUMPY[acc.dtype])
        start = f"{name} + (pid * 3 + {round}) * {acc.size}"
        self.emit(f"tl.store({start} + {_offsets((m, n), (n, 1))}, {acc.name})")
        self.emit(f"{acc.name} = tl.full(({m}, {n}), 1, tl.{acc.dtype})")

    def direct_loop(self, acc, dtype, addresses, steps, at, k, count, depth) -> None:
        """Pointers that advance."""
        p, q, z, x, y = (self.fresh(prefix) for prefix in "pqzlr")
        self.emit(f"{p} = {addresses[0]}")
        self.emit(f"{q} = {addresses[1]}")
        inside = f"{at} + {k} * {z} < {int(self.rng.integers(0, depth + 1))}"
        is_masked = self.rng.random() < 0.5
        masks = [f", mask=({inside})[{d}], other=0" if is_masked else "" for d in ("None, :", ":, None")]
        wish = self.pick(("", "", ", warp_specialize=True"))
        self.emit(f"for {z} in tl.range(0, {count}{self.stages()}{wish}):")
        self.indent += 1
        self.emit(f"{x} = tl.load({p}{masks[0]})")
        self.emit(f"{y} = tl.load({q}{masks[1]})")
        if dtype in EXACT and self.rng.random() < 0.3:
            self.emit(self.pick((f"{x} = {x} * 2", f"{y} = {y} * 2", f"{x} = tl.where({x} > 0, {x}, 0)")))
        product = f"{acc} = tl.dot({x}, {y}, {acc}{self.precision(dtype)})"
        if self.rng.random() < 0.2:
            self.emit(f"if {z} != 1:")
            product = f"    {product}"
        self.emit(product)
        self.emit(f"{p} += {steps[0]}")
        self.emit(f"{q} += {steps[1]}")

    def indirect_loop(self, acc, dtype, rows, matrix, at, k, count, depth) -> None:
        """The rows of b are those that an array of indices names."""
        b, bk, bn, j = matrix
        index = f"x{len(self.arrays)}"
        self.arrays[index] = self.rng.integers(0, depth, depth).astype(np.int32)
        p, which, z = (self.fresh(prefix) for prefix in "pwz")
        self.emit(f"{p} = {rows[0]}")
        self.emit(f"for {z} in tl.range(0, {count}{self.stages()}):")
        self.indent += 1
        self.emit(f"{which} = tl.load({index} + {z} * {k} + {at})")
        right = f"tl.load({b} + {which}[:, None] * {bk} + {j}[None, :] * {bn})"
        self.emit(f"{acc} = tl.dot(tl.load({p}), {right}, {acc}{self.precision(dtype)})")
        self.emit(f"{p} += {rows[1]}")

    def precision(self, dtype: str) -> str:
        """An argument of ``dot``: small integers are exact in each."""
        choices = ("", ', input_precision="tf32x3"', ', input_precision="ieee"')
        return self.pick(choices) if dtype == "float32" else ""

    def attention(self) -> None:
        """Two products, of which the second multiplies what the first gives: attention with an exact softmax.

        The weights are ``max(score - maximum, -4)``, and what was summed before a new maximum is forgotten.
        """
        m, n, d = self.pick((16, 32, 64)), self.pick((16, 32)), self.pick((16, 32))
        dtype = self.pick(("float16", "bfloat16"))
        count, most = self.trips()
        length = n * max(most, 1)
        q, qm, qd = self.matrix(dtype, self.grid * m, d)
        k, kn, kd = self.matrix(dtype, length, d)
        v, vn, vd = self.matrix(dtype, length, d)
        i, j, c, z, at = (self.fresh(prefix) for prefix in "ijczk")
        query, key, score, high, weight, keep, value = (self.fresh(prefix) for prefix in "qkshwcv")
        self.emit(f"{i} = pid * {m} + tl.arange(0, {m})")
        self.emit(f"{j}, {c} = tl.arange(0, {n}), tl.arange(0, {d})")
        self.emit(f"{query} = tl.load({q} + {i}[:, None] * {qm} + {c}[None, :] * {qd})")
        top = self.assign(f"tl.full(({m},), -9999.0, tl.float32)", "float32", (m,), 9999)
        total = self.assign(f"tl.zeros(({m},), tl.float32)", "float32", (m,), 4 * length)
        acc = self.assign(f"tl.zeros(({m}, {d}), tl.float32)", "float32", (m, d), 16 * length)
        transposed = f"tl.load({k} + {at}[None, :] * {kn} + {c}[:, None] * {kd})"
        rows = f"tl.load({k} + {at}[:, None] * {kn} + {c}[None, :] * {kd})"
        self.emit(f"for {z} in tl.range(0, {count}{self.stages()}):")
        self.indent += 1
        self.emit(f"{at} = {z} * {n} + {j}")
        self.emit(f"{key} = {self.pick((transposed, f'tl.trans({rows})'))}")
        self.emit(f"{score} = tl.dot({query}, {key})")
        if self.rng.random() < 0.5:
            self.emit(f"{score} = tl.where({i}[:, None] >= {at}[None, :], {score}, -1000.0)")
        self.emit(f"{high} = tl.maximum({top.name}, tl.max({score}, 1))")
        self.emit(f"{weight} = tl.maximum({score} - {high}[:, None], -4.0)")
        self.emit(f"{keep} = tl.where({high} > {top.name}, 0.0, 1.0)")
        self.emit(f"{total.name} = {total.name} * {keep} + tl.sum({weight}, 1)")
        self.emit(f"{value} = tl.load({v} + {at}[:, None] * {vn} + {c}[None, :] * {vd})")
        product = f"tl.dot({weight}.to(tl.{dtype}), {value}, {acc.name} * {keep}[:, None])"
        self.emit(f"{acc.name} = {product}")
        self.emit(f"{top.name} = {high}")
        self.indent -= 1

    def chain(self) -> None:
        """A product of a product with a matrix of its own."""
        m, n, k = self.pick((16, 32, 64)), self.pick((16, 32)), self.pick((16, 32))
        dtype = self.pick(("float16", "bfloat16", "float32"))
        i, j, z = (self.fresh(prefix) for prefix in "ijk")
        self.emit(f"{i}, {j}, {z} = tl.arange(0, {m}), tl.arange(0, {n}), tl.arange(0, {k})")
        tiles = []
        for rows, columns, at, across in ((m, k, i, z), (k, n, z, j), (n, m, j, i)):
            name, down, right = self.matrix(dtype, rows, columns)
            address = f"{name} + {at}[:, None] * {down} + {across}[None, :] * {right}"
            tiles.append(self.assign(f"tl.load({address})", dtype, (rows, columns), 4))
        a, b, c = (tile.name for tile in tiles)
        inner = self.assign(f"tl.dot({a}, {b})", "float32", (m, n), 16 * k)
        middle = self.converted(self.bounded(inner, 4), dtype)
        if self.rng.random() < 0.5:
            self.assign(f"tl.dot({middle.name}, {c})", "float32", (m, m), 16 * n)
        else:
            self.assign(f"tl.dot({c}, {middle.name})", "float32", (n, n), 16 * m)

    def batched(self) -> None:
        """Products of a few pairs of matrices at once, added up."""
        z, m, n, k = self.pick((2, 4)), self.pick((16, 32)), self.pick((16, 32)), self.pick((16, 32))
        dtype = self.pick(("float16", "bfloat16", "int8", "float32"))
        k = max(k, 32 // NUMPY[dtype].itemsize)
        a, am, ak = self.matrix(dtype, z * m, k)
        b, bk, bn = self.matrix(dtype, z * k, n)
        b_step = k * int(bk)
        a_step = m * int(am)
        left, right = self.fresh("l"), self.fresh("r")
        self.emit(f"{left} = tl.load({a} + {_offsets((z, a_step), (m, am), (k, ak))})")
        self.emit(f"{right} = tl.load({b} + {_offsets((z, b_step), (k, bk), (n, bn))})")
        result = "int32" if dtype == "int8" else "float32"
        self.assign(f"tl.sum(tl.dot({left}, {right}), axis=0)", result, (m, n), 16 * k * z)

    def scaled(self) -> None:
        """A product in microscaling formats: every 4-bit float there is, times bfloat16."""
        m, n, k = self.pick((16, 32, 64)), self.pick((16, 32)), self.pick((32, 64))
        # A scale of 2 or 4 makes integers of 4-bit floats.
        scales, columns = f"x{len(self.arrays)}", k // 32
        self.arrays[scales] = self.rng.integers(128, 130, m * columns).astype(np.uint8)
        a, am, ak = self.matrix("uint8", m, k // 2)
        b, bk, bn = self.matrix("bfloat16", k, n)
        i, j, at, left, right, scale = (self.fresh(prefix) for prefix in "ijklrt")
        self.emit(f"{i}, {j}, {at} = tl.arange(0, {m}), tl.arange(0, {n}), tl.arange(0, {k})")
        self.emit(f"{left} = tl.load({a} + {i}[:, None] * {am} + tl.arange(0, {k // 2})[None, :] * {ak})")
        self.emit(f"{right} = tl.load({b} + {at}[:, None] * {bk} + {j}[None, :] * {bn})")
        groups = f"tl.arange(0, {columns})[None, :]"
        self.emit(f"{scale} = tl.load({scales} + {i}[:, None] * {columns} + {groups})")
        text = f'tl.dot_scaled({left}, {scale}, "e2m1", {right}, None, "bf16")'
        self.assign(text, "float32", (m, n), 24 * 4 * k)

    def atomic(self) -> None:
        tile = self.choose(lambda t: t.is_exact and t.shape == self.shape and not t.is_bool)
        if tile is None or len(self.shape) != 1:
            return self.arithmetic()
        value = self.converted(tile, "int32")
        name = f"o{len(self.arrays)}"
        self.arrays[name] = np.zeros(8, np.int32)
        kind = self.pick(("add", "max", "min", "xor", "or"))
        self.emit(f"tl.atomic_{kind}({name} + (at & 7), {value.name}, mask=mm)")

    def walk(self) -> None:
        """A pointer that goes through an array of its own, as in the loop of a matrix product."""
        name, dtype, trips = f"x{len(self.arrays)}", self.pick(("int32", "float32", "float16", "int8")), 4
        step = self.pick((1, 16, self.size))
        self.arrays[name] = self.data(dtype, (self.rows * self.size // self.shape[0]) + trips * step)
        pointer = self.fresh("p")
        self.emit(f"{pointer} = {name} + at")
        bound = 4 * (trips + 1)
        start = self.converted(self.choose(lambda t: t.is_exact and t.shape == self.shape), dtype)
        start = self.bounded(start, 4) if start.is_float else start
        total = self.assign(f"{start.name} * 1", dtype, self.shape, bound)
        self.emit(f"for k in {self.pick(('range(s)', 'range(4)', 'tl.range(0, s, num_stages=3)'))}:")
        mask = self.pick((", mask=mm, other=0", ", mask=mm & (at > k), other=0"))
        self.emit(f"    {total.name} += tl.load({pointer}{mask})")
        self.emit(f"    {pointer} += {step}")

    def stream(self) -> None:
        """A loop whose loads are asked to run ahead: rows, what indices name or a branch finds, or a list. It
        may store, too."""
        width = self.pick((16, 64, 128, 256))
        count, most = self.trips()
        size = width * max(most, 1)
        dtype = self.pick(("int32", "int64", "int16", "float32", "float16"))
        x, index, far = (f"x{len(self.arrays) + n}" for n in range(3))
        self.arrays[x] = self.data(dtype, size)
        for name in (index, far):
            self.arrays[name] = self.rng.integers(0, size, size).astype(np.int32)
        i, at = self.fresh("i"), self.fresh("k")
        self.emit(f"{i} = tl.arange(0, {width})")
        total = self.assign(f"tl.full(({width},), 1, tl.int32)", "int32", (width,))
        way = self.pick(("rows", "rows", "index", "index", "levels", "list", "branch"))
        row = f"k * {width} + {i}"
        self.emit(f"{at} = {i}")
        self.emit(f"for k in tl.range(0, {count}, num_stages={self.pick((2, 3, 3, 4, 6))}):")
        self.indent += 1
        if way == "branch":
            self.emit("place = k")
            self.emit("if k % 2 == 0:")
            self.emit(f"    place = tl.load({index} + k) % (k + 1)")
            row = f"place * {width} + {i}"
        indexed = f"tl.load({index} + {row})"
        where = {"index": indexed, "levels": f"tl.load({far} + {indexed})", "list": at}.get(way, row)
        mask = self.pick(("", "", f", mask={row} < {size - 3}, other={self.pick((0, 5, -1))}",
                          f", mask=({i} + k) % 3 != 0, other={self.pick((0, 2))}"))  # fmt: skip
        value = self.fresh("l")
        self.emit(f"{value} = tl.load({x} + {where}{mask}).to(tl.int32)")
        self.emit(f"{total.name} = {total.name} * 3 + {value}")
        if way == "list":
            self.emit(f"{at} = tl.load({index} + {at})")
        if self.rng.random() < 0.4:
            out = f"o{len(self.arrays)}"
            self.arrays[out] = np.zeros(self.grid * size, np.int32)
            self.emit(f"tl.store({out} + pid * {size} + k * {width} + {i}, {value})")
        self.indent -= 1

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def nest(self) -> None:
        """Control flow within control flow, with a tile and a scalar going round."""
        one, other = self.pair("int32")
        shape = _broadcast(one.shape, other.shape)
        tile = self.assign(f"{one.name} ^ {other.name}", "int32", shape)
        number = self.assign("pid * 3 + s", "int32", ())
        t, c, w = tile.name, number.name, other.name
        self.emit("for k in range(0, s + 1):")
        self.emit(f"    if {self.pick(('k % 2 == 0', f'{c} > k', 'pid + k < 3'))}:")
        self.emit(f"        {t} = {t} + {self.pick((w, c, 'k'))}")
        self.emit(f"        {c} += 1")
        if self.rng.random() < 0.5:
            self.emit("    else:")
            self.emit(f"        {t} = {t} * 3")
        self.emit(f"    for q in range({self.pick(('k', '2', 'k, s'))}):")
        self.emit(f"        {t} = {self.pick((f'{t} - q', f'tl.where({t} > q, {t} - {w}, {t} + k)'))}")
        if self.rng.random() < 0.3:
            self.emit(f"    while {c} > 20:")
            self.emit(f"        {c} = {c} // 2")

    def integer_tile(self, test: Callable[[Tile], bool] = lambda tile: True) -> Tile | None:
        """Some tile as ``int32``."""
        tile = self.choose(lambda t: t.is_exact and t.shape and test(t))
        return None if tile is None else self.converted(tile, "int32")

    def combine(self) -> None:
        """Reductions and scans with a function of their own, over one or two values."""
        tile = self.integer_tile()
        axis = int(self.rng.integers(len(tile.shape)))
        rest = tile.shape[:axis] + tile.shape[axis + 1 :]
        kind = self.pick(("reduce", "scan", "pair"))
        if kind == "reduce":
            self.assign(f"tl.reduce({tile.name}, {axis}, largest)", "int32", rest)
        elif kind == "scan":
            function = self.pick(("largest", "last_odd")) if tile.size <= 64 else "largest"
            reverse = self.pick(("", ", reverse=True"))
            self.assign(f"tl.associative_scan({tile.name}, {axis}, {function}{reverse})", "int32", tile.shape)
        else:
            name = self.fresh("q")
            text = f"tl.associative_scan(({tile.name} & 3, {tile.name} + 1), {axis}, compose)"
            self.emit(f"{name}a, {name}b = {text}")
            self.pool.append(Tile(f"{name}b", "int32", tile.shape))

    def best(self) -> None:
        tile = self.choose(lambda t: t.is_exact and t.shape and not t.is_bool)
        axis = int(self.rng.integers(len(tile.shape)))
        shape = tile.shape[:axis] + tile.shape[axis + 1 :]
        name = self.fresh("b")
        function = self.pick(("max", "min"))
        self.emit(f"{name}v, {name}i = tl.{function}({tile.name}, {axis}, return_indices=True)")
        self.pool.append(Tile(f"{name}i", "int32", shape))

    def gather(self) -> None:
        tile = self.choose(lambda t: t.is_exact and t.shape and not t.is_bool)
        index = self.integer_tile(lambda t: t.shape == tile.shape)
        if index is None:
            return self.arithmetic()
        axis = int(self.rng.integers(len(tile.shape)))
        text = f"tl.gather({tile.name}, {index.name} & {tile.shape[axis] - 1}, axis={axis})"
        self.assign(text, tile.dtype, tile.shape, tile.bound)

    def histogram(self) -> None:
        tile = self.integer_tile(lambda t: len(t.shape) == 1)
        if tile is None:
            return self.arithmetic()
        bins = self.pick((4, 16, 32))
        self.assign(f"tl.histogram({tile.name} & {bins - 1}, {bins})", "int32", (bins,))

    def rearrange(self) -> None:
        tile = self.integer_tile(lambda t: len(t.shape) == 1 and 2 <= t.size <= 256)
        if tile is None:
            return self.transpose()
        if self.rng.random() < 0.3 and tile.size <= 32:
            self.assign(f"tl.sort({tile.name})", "int32", tile.shape)
        elif self.rng.random() < 0.5:
            self.assign(f"tl.flip({tile.name})", "int32", tile.shape)
        else:
            self.assign(f"tl.interleave({tile.name}, {tile.name} * 2)", "int32", (2 * tile.size,))

    def exact_function(self) -> None:
        """Functions of floats that are exact on small integers, narrow floats, and a called function."""
        value = self.bounded(self.converted(self.choose(lambda t: t.is_exact), "float32"), 4)
        x = value.name
        text = self.pick((
            f"tl.floor({x} * 0.5)", f"tl.ceil({x} * 0.25)", f"tl.fma({x}, {x}, {x})",
            f"tl.clamp({x}, -1.0, 2.0)", f"twice_plus({x}, 3.0)", f"{x}.to(tl.float8e5).to(tl.float32)",
            f"{x}.to(tl.float8e4nv).to(tl.float32)",
            f"tl.sqrt({x} * {x})", f"tl.maximum({x}, 0.0)", f"({x} * 0.5).to(tl.int32).to(tl.float32)",
        ))  # fmt: skip
        self.assign(text, "float32", value.shape, 20)

    def assembly(self) -> None:
        """Inline assembly: of 32-bit words, of packed bytes and halves, with one or two results."""
        tile = self.choose(lambda t: t.is_int and t.dtype != "int64")
        if tile is None:
            return self.arithmetic()
        kind = self.pick(("words", "words", "packed", "halves", "effect", "two"))
        if kind == "packed":
            value = self.converted(tile, self.pick(("int8", "uint8")))
            text = self.pick((
                "not.b32 $0, $1;", "xor.b32 $0, $1, 0x5A5A5A5A;", "and.b32 $0, $1, 0x3F3F3F3F;",
            ))  # fmt: skip
            self.assembled(text, "=r,r", (value,), value.dtype, 4)
        elif kind == "halves":
            value = self.converted(tile, "int16")
            text = "{ .reg .b16 t; add.s16 t, $1, $1; sub.s16 $0, t, 1; }"
            self.assembled(text, "=h,h", (value,), "int16", 1)
        else:
            one = self.converted(tile, "int32")
            other = self.choose(lambda t: t.is_int and _broadcast(one.shape, t.shape) is not None)
            other = self.converted(other, "int32")
            if kind == "two":
                self.two_results(one, other)
            else:
                text = self.pick((
                    "mad.lo.s32 $0, $1, $2, $1;", "min.s32 $0, $1, $2;", "prmt.b32 $0, $1, $2, 0x3715;",
                    "{ .reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, $2, 7, p; }",
                    "shl.b32 $0, $1, 3; xor.b32 $0, $0, $2;", "lop3.b32 $0, $1, $2, $1, 0x6a;",
                ))  # fmt: skip
                self.assembled(text, "=r,r,r", (one, other), "int32", 1, kind != "effect")

    def assembled(self, text, constraints, values, dtype, pack, pure=True) -> None:
        """The only result of an inline assembly."""
        shape = values[0].shape
        for value in values[1:]:
            shape = _broadcast(shape, value.shape)
        names = ", ".join(value.name for value in values)
        arguments = f'"{text}", "{constraints}", [{names}], tl.{dtype}, {pure}, {pack}'
        self.assign(f"tl.inline_asm_elementwise({arguments})", dtype, shape)

    def two_results(self, one: Tile, other: Tile) -> None:
        name, shape = self.fresh("a"), _broadcast(one.shape, other.shape)
        text = "mul.hi.s32 $0, $2, $3; cvt.u16.u32 $1, $2;"
        arguments = f'"{text}", "=&r,=h,r,r", [{one.name}, {other.name}], (tl.int32, tl.int16), True, 1'
        self.emit(f"{name}a, {name}b = tl.inline_asm_elementwise({arguments})")
        self.pool += [Tile(f"{name}a", "int32", shape), Tile(f"{name}b", "int16", shape)]

    def function(self) -> None:
        """Functions that are not exact; their results are only added to, and stored."""
        tile = self.choose(lambda t: t.is_exact and not t.is_bool)
        value = self.bounded(self.converted(tile, "float32"), 4)
        x = value.name
        text = self.pick((
            f"tl.exp({x})", f"tl.exp2({x})", f"tl.sqrt(tl.abs({x}))", f"1.0 / ({x} * {x} + 1.0)",
            f"tl.sin({x})", f"tl.log(tl.abs({x}) + 1.0)", f"tl.sigmoid({x})", f"{x} / 3.0",
            f"tl.rsqrt({x} * {x} + 1.0)", f"tl.erf({x})",
        ))  # fmt: skip
        result = self.assign(text, "float32", value.shape, None)
        if len(result.shape) == 1 and self.rng.random() < 0.5:
            self.assign(f"tl.sum({result.name}, axis=0) + {x} * 2.0", "float32", result.shape, None)


def _offsets(*dimensions: tuple[int, int | str]) -> str:
    """The offsets of a tile with these sizes and strides."""
    terms = []
    for axis, (size, stride) in enumerate(dimensions):
        key = ", ".join(":" if d == axis else "None" for d in range(len(dimensions)))
        terms.append(f"tl.arange(0, {size})[{key}] * {stride}")
    return " + ".join(terms)


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape; ``None`` when there is none. Ranks must agree, except that scalars fit everything."""
    if not one or not other:
        return one or other
    if len(one) != len(other) or any(a != b and 1 not in (a, b) for a, b in zip(one, other)):
        return None
    return tuple(max(a, b) for a, b in zip(one, other))


STEPS = (
    *[_Generator.arithmetic] * 5, *[_Generator.unary] * 2, *[_Generator.compare] * 2, _Generator.logic,
    *[_Generator.select] * 3, *[_Generator.cast] * 2, *[_Generator.expand] * 2, _Generator.transpose,
    _Generator.reshape, _Generator.join_and_split, *[_Generator.reduce] * 3, _Generator.scan,
    *[_Generator.loop] * 2, _Generator.while_loop, _Generator.branch, _Generator.product,
    _Generator.tensor_cores, weave, _Generator.atomic, *[_Generator.function] * 2, *[_Generator.walk] * 2,
    *[_Generator.nest] * 2, _Generator.stream, _Generator.combine, _Generator.best, _Generator.gather,
    _Generator.histogram, _Generator.rearrange, *[_Generator.exact_function] * 2,
    *[_Generator.assembly] * 2, window, spill,
    *exits.STEPS,
)  # fmt: skip
