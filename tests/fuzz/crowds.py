"""Random atomics of many threads at few places, of every kind and type, in tiles, scalars, loops, branches,
by several programs and clusters; small tiles in many warps, whose elements each count once. In what order
threads come is open, and so is what each gets back, but not all of it together: of any function ``h``, the
sum of ``h(new) - h(old)`` over all changes of a place is ``h(last) - h(first)``, where the change says what
becomes of the old value; and numbers drawn by counting are each drawn once.
"""

from __future__ import annotations

import re

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

SHAPES = (
    (1,),
    (2,),
    (4,),
    (32,),
    (64,),
    (256,),
    (512,),
    (1, 1),
    (2, 1),
    (8, 16),
    (16, 2),
    (1, 64),
    (4, 64),
    (2, 4, 8),
)
WIDE = ("int32", "int64", "uint32", "uint64")
TYPES = {
    "add": (*WIDE, "float32", "float64", "float16", "bfloat16"),
    "max": (*WIDE, "float32", "float64"),
    "min": (*WIDE, "float32", "float64"),
    "and": WIDE,
    "or": WIDE,
    "xor": WIDE,
    "xchg": (*WIDE, "float32", "float64"),
    "cas": (*WIDE, "float32", "int16"),
}
CHANGED = {
    "add": "old + v",
    "max": "tl.maximum(old, v)",
    "min": "tl.minimum(old, v)",
    "and": "old & v",
    "or": "old | v",
    "xor": "old ^ v",
    "xchg": "v",
    "cas": "tl.where(old == c, v, old)",
}
"""What becomes of a place's old value."""
NAMES = re.compile(r"\b(v|c|at|b|total|old|new|gain|drawn|read)\b(?!=)")
"""Variables of a step."""
ORDERS = ("", "", ", sem='relaxed'", ", sem='acquire'", ", sem='release', scope='gpu'", ", scope='sys'")


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Crowds(seed).program()


class _Crowds(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 83)
        self.shape = self.pick(SHAPES)
        self.size = int(np.prod(self.shape))
        self.warps = self.pick((1, 2, 4, 8, 16))
        self.grid = self.pick((1, 1, 2, 3))
        self.expected: dict[str, np.ndarray] = {}

    def program(self) -> LaunchedProgram:
        self.emit("pid = tl.program_id(0)", f"i = {self.linear()}")
        for _ in range(self.pick((1, 2, 3))):
            first = len(self.lines)
            self.pick(
                (self.crowd, self.crowd, self.crowd, self.tickets, self.single, self.lock, self.ordered)
            )()
            own = self.fresh("_")  # names of its own: loops must not carry another one's
            self.lines[first:] = [NAMES.sub(rf"\1{own}", line) for line in self.lines[first:]]
        target = self.pick(("sm_90a", "sm_90a", "sm_80", "sm_120"))
        made = self.finish("crowd", target, self.pick((1, 1, 2, 4)) if target == "sm_90a" else 1)
        return attrs.evolve(made, expected=self.arrays | self.expected)

    def linear(self) -> str:
        text, stride = [], 1
        for axis in range(len(self.shape) - 1, -1, -1):
            key = ", ".join(":" if d == axis else "None" for d in range(len(self.shape)))
            text.append(f"tl.arange(0, {self.shape[axis]})[{key}] * {stride}")
            stride *= self.shape[axis]
        return " + ".join(text[::-1])

    def places(self, bins: int) -> tuple[str, np.ndarray]:
        """Where each element goes, and the same as an array."""
        i = np.arange(self.size)
        how = self.pick(("rest", "part", "one", "loaded", "own"))
        if how == "rest":
            return f"(i % {bins})", i % bins
        if how == "part":
            return f"(i // {max(1, self.size // bins)} % {bins})", i // max(1, self.size // bins) % bins
        if how == "one":
            at = int(self.rng.integers(bins))
            return f"(i * 0 + {at})", i * 0 + at
        if how == "own":
            return f"((i + 1) & {bins - 1})", (i + 1) & (bins - 1)
        data = self.rng.integers(0, bins, self.size).astype(np.int32)
        return f"tl.load({self.keep('x', data)} + i)", data

    def mask(self) -> tuple[str, np.ndarray]:
        """A condition of elements, or none."""
        i = np.arange(self.size)
        how = self.pick(("", "", "below", "odd", "none"))
        if how == "below":
            end = int(self.rng.integers(0, self.size + 1))
            return f"i < {self.number(self.fresh('n'), end)}", i < end
        if how == "odd":
            return "i % 3 != 1", i % 3 != 1
        if how == "none":
            return f"i < {self.number(self.fresh('n'), 0)}", i < 0
        return "", i >= 0

    def repeat(self) -> int:
        """A loop's head, and how often it goes round; once is none."""
        trips = self.pick((1, 1, 0, 2, 3))
        if trips == 1:
            return 1
        n, k = self.number(self.fresh("n"), trips), self.fresh("k")
        self.emit(
            f"for {k} in tl.range(0, {n}{self.pick(('', ', num_stages=3', ', loop_unroll_factor=2'))}):"
        )
        self.indent += 1
        return trips

    def values(self, kind: str, dtype: str) -> np.ndarray:
        if dtype.endswith(("float16",)):
            return self.rng.integers(-1, 2, self.size).astype(numpy_type(dtype))
        if dtype.startswith("f") or kind == "cas":
            return self.rng.integers(0 if dtype.startswith("u") else -3, 4, self.size).astype(dtype)
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max, self.size, dtype, endpoint=True)

    def crowd(self) -> None:
        """One atomic of a tile. What it gives back is added up."""
        kind = self.pick(tuple(CHANGED) if self.grid == 1 else tuple(CHANGED)[:6])
        dtype, bins = self.pick(TYPES[kind]), self.pick((1, 2, 8, 64))
        if dtype == "bfloat16" and self.size * self.grid * 3 > 256:
            dtype = "float32"
        host = numpy_type(dtype)
        first = self.rng.integers(0, 3, bins).astype(host)
        out, total = self.keep("o", first), self.keep("o", np.zeros(1, np.int64))
        values = self.values(kind, dtype)
        place, at = self.places(bins)
        mask, held = ("", np.ones(self.size, bool)) if kind == "cas" else self.mask()
        outer = self.indent
        self.emit(
            f"v = tl.load({self.keep('x', values)} + i)", f"at = {place}", "total = pid.to(tl.int64) * 0"
        )
        trips = self.repeat()
        order, more = self.pick(ORDERS), f", mask={mask}" if mask else ""
        if kind == "cas":
            expected = self.pick((0, 1, 2))
            self.emit(f"c = tl.full({self.shape}, {expected}, tl.{dtype})")
            self.emit(f"old = tl.atomic_cas({out} + at, c, v{order})")
        else:
            self.emit(f"old = tl.atomic_{kind}({out} + at, v{more}{order})")
        if dtype in ("bfloat16", "float16"):
            self.emit(f"new = ({CHANGED[kind].replace('old', 'old.to(tl.float32)')}).to(tl.int64)")
        else:
            self.emit(f"new = ({CHANGED[kind]}).to(tl.int64)")
        self.emit("old = old.to(tl.int64)", "gain = (new * new + new * 5) - (old * old + old * 5)")
        text = f"tl.where({mask}, gain, 0)" if mask else "gain"
        self.emit(f"total += tl.sum({text})")
        self.indent = outer
        self.emit(f"tl.atomic_add({total}, total)")
        if kind in ("xchg", "cas"):
            return self.close(out, total, first)
        last = self.last(kind, first, at[held], values[held], trips * self.grid)
        self.expected[out] = last
        a, b = last.astype(np.int64), first.astype(np.int64)
        self.expected[total] = np.array([np.sum(a * a + a * 5 - b * b - b * 5)])

    def last(
        self, kind: str, first: np.ndarray, at: np.ndarray, values: np.ndarray, times: int
    ) -> np.ndarray:
        apply = {
            "add": np.add,
            "max": np.maximum,
            "min": np.minimum,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
        }[kind]
        found = first.copy()
        for _ in range(times):
            for place, value in zip(at, values, strict=True):
                found[place] = apply(found[place], value)
        return found

    def close(self, out: str, total: str, first: np.ndarray) -> None:
        """Which value is the last one is open: it is taken out of the sum by the program that comes last."""

        done = self.fresh("d")
        self.emit(
            "tl.debug_barrier()",
            f"b = tl.arange(0, {len(first)})",
            f"{done} = tl.load({out} + b).to(tl.int64)",
            "tl.debug_barrier()",
            f"tl.store({out} + b, 0)",
            f"tl.atomic_add({total}, -tl.sum({done} * {done} + {done} * 5))",
        )
        start = first.astype(np.int64)
        self.expected[out] = np.zeros_like(first)
        self.expected[total] = np.array([-np.sum(start * start + start * 5)])

    def tickets(self) -> None:
        """Each element draws a number of its place, by which it has a place of its own."""
        dtype, bins = self.pick(WIDE), self.pick((1, 4, 16))
        place, at = self.places(bins)
        mask, held = self.mask()
        trips = self.pick((1, 1, 2))
        room = self.size * self.grid * trips
        counts, marks = self.keep("o", np.zeros(bins, dtype)), self.keep("o", np.zeros(bins * room, np.int32))
        more = f", mask={mask}" if mask else ""
        self.emit(f"at = {place}")
        if trips > 1:
            self.emit(f"for k in tl.range(0, {self.number(self.fresh('n'), trips)}):")
        self.indent += trips > 1
        one = self.pick(("1", f"tl.full({self.shape}, 1, tl.{dtype})"))
        self.emit(
            f"drawn = tl.atomic_add({counts} + at, {one}{more}{self.pick(ORDERS)})",
            f"tl.store({marks} + at * {room} + drawn.to(tl.int32), at + 1{more})",
        )
        self.indent -= trips > 1
        counted = np.bincount(at[held], minlength=bins) * trips * self.grid
        self.expected[counts] = counted.astype(dtype)
        drawn = np.arange(room)[None, :] < counted[:, None]
        self.expected[marks] = (
            np.where(drawn, np.arange(1, bins + 1)[:, None], 0).astype(np.int32).reshape(-1)
        )

    def single(self) -> None:
        """A number that each program draws once, however many threads it has; in a loop, perhaps."""
        counter, marks = self.keep("o", np.zeros(1, np.int32)), self.keep("o", np.zeros(16, np.int32))
        flag = self.number(self.fresh("n"), self.pick((0, 1)))
        outer, trips = self.indent, self.repeat()
        if self.chance(0.3):
            self.emit(f"if {flag} == 1:")
            self.indent += 1
            trips *= int(self.scalars.get(flag, flag if flag.isdigit() else 0))
        self.emit(
            f"drawn = tl.atomic_add({counter}, 1{self.pick(ORDERS)})",
            f"tl.store({marks} + drawn, tl.atomic_add({marks} + drawn, 5) + 2)",
        )
        self.indent = outer
        count = trips * self.grid
        self.expected[counter] = np.array([count], np.int32)
        self.expected[marks] = np.where(np.arange(16) < count, 2, 0).astype(np.int32)

    def lock(self) -> None:
        """Memory that a lock guards."""
        guard, held = self.keep("o", np.zeros(1, np.int32)), self.keep("o", np.zeros(self.size, np.int32))
        self.emit(
            f"while tl.atomic_cas({guard}, 0, 1) == 1:",
            "    pass",
            f"tl.store({held} + i, tl.load({held} + i, volatile=True) * 3 + i + 1)",
            "tl.debug_barrier()",
            f"tl.atomic_xchg({guard}, 0)",
        )
        i, last = np.arange(self.size, dtype=np.int32), np.zeros(self.size, np.int32)
        for _ in range(self.grid):
            last = last * np.int32(3) + i + np.int32(1)
        self.expected[held] = last

    def ordered(self) -> None:
        """Stores and loads as a whole, of each type."""
        dtype = self.pick((*WIDE, "float32", "float16", "int8", "uint16", "bfloat16"))
        data = self.rng.integers(0, 100, self.size).astype(numpy_type(dtype))
        given, out = self.keep("x", data), self.keep("o", np.zeros(self.size * self.grid, numpy_type(dtype)))
        mask, held = self.mask()
        more = f", mask={mask}" if mask else ""
        stored = f", mask={mask}" if self.chance(0.5) and mask else ""
        order = self.pick(("", ", sem='relaxed'"))
        self.emit(f"read = tl.atomic_load({given} + i{more}{order})")
        self.emit(f"tl.atomic_store({out} + pid * {self.size} + i, read{stored})")
        self.expected[out] = np.tile(np.where(held, data, 0).astype(numpy_type(dtype)), self.grid)
