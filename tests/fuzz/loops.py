"""Random loops of products, with all that may be asked of a loop: ``tl.range`` with stages, unrolling, warps
that copy and flattening in any combination, depths that are known or not and end anywhere, no step and one
step; around them no loop (the compiler may make one), a loop over tiles, or a ``while``; behind them loads,
atomics, branches.

One of three programs has loops without products (``streams.py``).

``generate(seed)`` gives a :class:`LaunchedProgram`. Floats are small integers, so that all executors agree to
the last bit.
"""

from __future__ import annotations

from tests.fuzz.draw import TARGETS, LaunchedProgram, Writer
from tests.fuzz.streams import stream_program

SIZES = (  # rows, columns, depth of a step, warps, stages
    (128, 128, 64, 4, 4), (128, 128, 64, 4, 5), (64, 256, 64, 4, 4), (128, 256, 64, 8, 3), (64, 64, 32, 4, 3),
    (64, 32, 64, 4, 2), (128, 64, 32, 8, 3), (32, 32, 32, 4, 3), (64, 64, 64, 2, 2), (64, 128, 128, 4, 4),
)  # fmt: skip
LARGE = (128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (64, 128, 128, 4, 4), (128, 256, 64, 8, 3)
"""Sizes that leave no room for a second block, so that the compiler makes programs walk over tiles."""


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Loops(seed).program()


class _Loops(Writer):
    def __init__(self, seed: int):
        super().__init__(seed, 75)
        self.is_hopper = self.chance(0.5)  # what ``wgmma`` takes and TMA feeds
        sizes = LARGE if self.is_hopper and self.chance(0.7) else SIZES
        self.m, self.n, self.k, self.warps, self.stages = self.pick(sizes)
        self.is_int8 = self.chance(0.1)
        self.down, self.across = self.pick((1, 2, 3)), self.pick((1, 1, 2))
        self.steps = self.pick((0, 1, 2, 3, 3, 4, 5, 6))
        less = self.pick((0, 0, 0, 8, 16, int(self.rng.integers(0, self.k))))
        self.depth = max(0, self.steps * self.k - less)

    # -- the program -----------------------------------------------------------------------------------

    def program(self) -> LaunchedProgram:
        is_stream = self.seed % 3 == 1
        if is_stream:
            stream_program(self)
        else:
            self.product()
        target = "sm_90a" if self.is_hopper else self.pick(TARGETS)
        ctas = self.pick((2, 2, 4)) if target == "sm_90a" and self.chance(0.3) else 1
        return self.finish("loop", target, ctas, has_steps=is_stream or self.depth > 0)

    def product(self) -> None:
        self.rows = self.down * self.m - self.pick((0, 0, int(self.rng.integers(0, self.m))))
        self.columns = self.across * self.n - self.pick((0, 0, 8, int(self.rng.integers(0, self.n))))
        if self.chance(0.95 if self.is_hopper else 0.8):
            self.columns = self.columns // 16 * 16
        self.columns = max(1, self.columns)
        kind, tiles = "int8" if self.is_int8 else "float16", self.down * self.across
        self.feed = self.pick(("pointers", "pointers", "pointers", "block", "descriptor", "descriptor"))
        is_aligned = self.is_hopper or self.chance(0.8) or self.feed == "descriptor"
        self.width = -(-self.depth // 16) * 16 if is_aligned else max(1, self.depth)
        self.width = max(self.width, 16)
        self.a = self.array("x", self.rows * self.width, kind, 1)
        self.is_turned = self.is_int8 or self.chance(0.4)
        self.b_width = self.width if self.is_turned else -(-self.columns // 16) * 16
        high = self.columns if self.is_turned else self.depth
        self.b = self.array("x", high * self.b_width, kind, 1)
        sizes = {"D": self.depth, "R": self.rows, "C": self.columns, "W": self.width}
        self.D, self.R, self.C, self.W = (self.number(*size) for size in sizes.items())
        how = self.pick(("made", "made", "made", "tiles", "tiles", "tiles", "while", "twice"))
        self.emit(f"i, j, k = tl.arange(0, {self.m}), tl.arange(0, {self.n}), tl.arange(0, {self.k})")
        self.out = self.array("o", 2 * self.rows * self.columns, "int32" if self.is_int8 else "float32")
        getattr(self, f"_{how}")(self.number("T", tiles), tiles)

    def advice(self, outer: bool) -> str:
        """What is asked of a loop."""
        parts = []
        if not outer and self.chance(0.1 if self.is_hopper else 0.4):
            parts.append(f"num_stages={self.pick((0, 1, 2, 3, 4, 5))}")
        if self.chance(0.35):
            parts.append(f"warp_specialize={self.chance(0.9)}")
        if self.chance(0.3 if outer else 0.05):
            parts.append("flatten=True")
        if self.chance(0.05 if outer else 0.12):
            parts.append(f"loop_unroll_factor={self.pick((1, 2, 3))}")
        return "".join(f", {part}" for part in parts)

    def _made(self, count: str, tiles: int) -> None:
        self.grid = tiles
        self.tile("tl.program_id(0)")

    def _tiles(self, count: str, tiles: int) -> None:
        self.grid = self.pick((1, 1, 2))
        first, step = ("tl.program_id(0)", str(self.grid)) if self.grid > 1 else ("0", "1")
        if self.chance(0.15):
            count = f"{count} - {self.pick((tiles, 1))}"  # the last may be missing, or all
        self.emit(f"for t in tl.range({first}, {count}, {step}{self.advice(True)}):")
        self.indent += 1
        self.tile("t")

    def _while(self, count: str, tiles: int) -> None:
        self.grid = self.pick((1, 2))
        self.emit("t = tl.program_id(0)", f"while t < {count}:")
        self.indent += 1
        self.tile("t")
        self.emit(f"t += {self.grid}")

    def _twice(self, count: str, tiles: int) -> None:
        self.grid = tiles
        self.emit(f"for u in tl.range(0, {self.pick(('1', '2', '3'))}{self.advice(True)}):")
        self.indent += 1
        self.tile("tl.program_id(0)")

    # -- a tile ----------------------------------------------------------------------------------------

    def tile(self, number: str) -> None:
        wide = self.pick(("", "", ".to(tl.int64)"))
        self.emit(f"y = ({number}) // {self.across} * {self.m}", f"z = ({number}) % {self.across} * {self.n}")
        self.emit(f"p, q = y{wide} + i, z + j")
        kind = "int32" if self.is_int8 else "float32"
        self.emit(f"acc = tl.zeros(({self.m}, {self.n}), tl.{kind})")
        if self.chance(0.1) and not self.is_int8:
            extra = self.array("x", self.rows * self.columns, "float32", 3)
            self.emit(f"acc += tl.load({extra} + {self.place()}, mask={self.mask()}, other=0)")
        self.prepare()
        self.emit(f"for s in tl.range(0, {self.D}, {self.k}{self.advice(False)}):")
        self.indent += 1
        left, right = self.operands()
        if self.chance(0.05 if self.is_hopper else 0.15) and not self.is_int8:
            left = f"({left} * 2)"
        self.emit(f"acc = tl.dot({left}, {right}, acc)")
        if self.feed == "block":
            self.emit(f"f = tl.advance(f, (0, {self.k}))")
            self.emit(f"g = tl.advance(g, ({f'0, {self.k}' if self.is_turned else f'{self.k}, 0'}))")
        if self.chance(0.03 if self.is_hopper else 0.07):
            counter = self.array("o", 1, "int32")
            self.emit(f"tl.atomic_add({counter}, 1)")
        self.indent -= 1
        self.leave(number)

    def place(self) -> str:
        return f"p[:, None] * {self.columns} + q[None, :]"

    def mask(self) -> str:
        return f"(p[:, None] < {self.R}) & (q[None, :] < {self.C})"

    def prepare(self) -> None:
        a_box, b_box = (self.m, self.k), (self.n, self.k) if self.is_turned else (self.k, self.n)
        high = self.C if self.is_turned else self.D
        b_width = self.D if self.is_turned else self.C
        if self.feed == "block":
            place = "z, 0" if self.is_turned else "0, z"
            a = f"{self.a}, ({self.R}, {self.D}), ({self.W}, 1), (y, 0), {a_box}, (1, 0)"
            b = f"{self.b}, ({high}, {b_width}), ({self.b_width}, 1), ({place}), {b_box}, (1, 0)"
            self.emit(f"f, g = tl.make_block_ptr({a}), tl.make_block_ptr({b})")
        elif self.feed == "descriptor":
            self.emit(
                f"f = tl.make_tensor_descriptor({self.a}, ({self.R}, {self.D}), ({self.W}, 1), {a_box})",
                f"g = tl.make_tensor_descriptor({self.b}, ({high}, {b_width}), ({self.b_width}, 1), {b_box})",
            )

    def operands(self) -> tuple[str, str]:
        if self.feed == "block":
            left, right = (f"tl.load({x}, boundary_check=(0, 1), padding_option='zero')" for x in "fg")
        elif self.feed == "descriptor":
            left, right = "f.load([y, s])", f"g.load([{'z, s' if self.is_turned else 's, z'}])"
        else:
            inside = f"s + k < {self.D}"
            rows = self.pick((f"p % {self.R}", "p"))
            mask = f"({inside})[None, :]" + ("" if "%" in rows else f" & (p[:, None] < {self.R})")
            place = f"({rows})[:, None] * {self.W} + (s + k)[None, :]"
            left = f"tl.load({self.a} + {place}, mask={mask}, other=0)"
            bound = f"({inside})[:, None] & (q[None, :] < {self.C})"
            if self.is_turned:
                place = f"q[None, :] * {self.b_width} + (s + k)[:, None]"
            else:
                place = f"(s + k)[:, None] * {self.b_width} + q[None, :]"
            return left, f"tl.load({self.b} + {place}, mask={bound}, other=0)"
        return left, f"tl.trans({right})" if self.is_turned else right

    def leave(self, number: str) -> None:
        """What becomes of a sum."""
        how = self.pick(("store", "store", "store", "residual", "vector", "atomic", "branch", "sums", "over"))
        place, mask = self.place(), self.mask()
        if how == "residual":
            extra = self.array("x", self.rows * self.columns, "float16", 3)
            self.emit(f"acc += tl.load({extra} + {place}, mask={mask}, other=0).to(acc.dtype)")
        elif how == "vector":
            extra = self.array("x", self.columns, "int8", 3)
            self.emit(f"acc += tl.load({extra} + q, mask=q < {self.C}, other=0)[None, :].to(acc.dtype)")
        elif how == "sums":
            out = self.array("o", self.down * self.across * self.m, "int32" if self.is_int8 else "float32")
            total = f"tl.sum(tl.where(q[None, :] < {self.C}, acc, 0), 1)"
            self.emit(f"tl.store({out} + ({number}) * {self.m} + i, {total}, mask=p < {self.R})")
        if how == "atomic":
            self.emit(f"tl.atomic_add({self.out} + {place}, acc, mask={mask})")
        elif how == "branch":
            self.emit(f"if ({number}) % 2 == 0:", f"    tl.store({self.out} + {place}, acc, mask={mask})")
        elif how == "over" and "t" in number and self.grid == 1:
            # By the same threads: in what order others store only barriers would say.
            place = place.replace("p[", f"(p - y + y // {2 * self.m} * {self.m})[")
            self.emit(f"tl.store({self.out} + {place}, acc, mask={mask})")
        else:
            self.emit(f"tl.store({self.out} + {place}, acc, mask={mask})")
