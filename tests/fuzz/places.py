"""Random places in memory: indices that are made of ranges, numbers of programs, arguments, loops' counters
and loaded numbers by any arithmetic, masks of comparisons of such, and accesses there: loads that add up,
stores, atomics, in loops and branches or not, of tiles in one dimension to three.

Of each index its least and its largest value are known, so that every access is inside its array, or behind a
mask where it is not.
"""

from __future__ import annotations

import itertools

import attrs
import numpy as np

from tests.fuzz.draw import LaunchedProgram, Writer, numpy_type

SHAPES = (
    (32,),
    (128,),
    (256,),
    (512,),
    (4, 32),
    (16, 16),
    (8, 64),
    (32, 8),
    (64, 4),
    (1, 128),
    (2, 4, 16),
    (4, 8, 8),
)
KINDS = ("int32", "int32", "float32", "float16", "int8", "uint8", "int16", "int64", "uint16", "bfloat16")
LIMIT = 1 << 13
"""Elements of an array, about: indices that reach further are taken modulo something."""
WIDEST = 1 << 30
"""Values of indices stay below."""


@attrs.frozen
class Index:
    """An expression with its least and largest value."""

    text: str
    least: int
    most: int

    def __str__(self) -> str:
        return self.text


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return Places(seed).program()


class Places(Writer):
    """Writes programs of indices and accesses."""

    def __init__(self, seed: int, stream: int = 76):
        super().__init__(seed, stream)
        self.shape = self.pick(SHAPES)
        self.size = int(np.prod(self.shape))
        self.warps, self.stages = self.pick((1, 2, 4, 4, 8)), self.pick((1, 2, 3, 4))
        self.grid = self.pick((1, 2, 3))
        self.leaves: list[Index] = []

    def program(self) -> LaunchedProgram:
        self.begin()
        zeros = f"tl.zeros({self.shape}, tl.int32)" if self.chance(0.5) else self.linear_text()
        self.emit(f"acc = {zeros}")
        for _ in range(self.pick((1, 2, 3))):
            self.pick((self.index, self.access, self.access, self.loop, self.branch, self.update))()
        self.access()
        return self.end("place")

    def begin(self) -> None:
        """Numbers that indices are made of."""
        self.emit("pid = tl.program_id(0)")
        self.leaves.append(Index("pid", 0, self.grid - 1))
        for axis, length in enumerate(self.shape):
            key = ", ".join(":" if d == axis else "None" for d in range(len(self.shape)))
            self.emit(f"{'ijh'[axis]} = tl.arange(0, {length}){f'[{key}]' if len(self.shape) > 1 else ''}")
            self.leaves += [Index("ijh"[axis], 0, length - 1)] * 3
        for name in "abc"[: self.pick((1, 2, 3))]:
            value = self.pick(
                (1, 2, 3, 5, 16, 17, 32, 48, 64, 100, -1, -4, -16, 0, int(self.rng.integers(1, 200)))
            )
            self.scalars[name] = value
            self.leaves.append(Index(name, value, value))
        self.ranges = list(self.leaves)

    def end(self, name: str) -> LaunchedProgram:
        self.store("acc")
        ctas = self.pick((1, 1, 1, 1, 2, 4))
        target = self.pick(("sm_90a", "sm_90a", "sm_80"))
        return self.finish(name, target, ctas if target == "sm_90a" else 1)

    # -- indices ---------------------------------------------------------------------------------------

    def index(self) -> Index:
        """A variable that holds an index."""
        one = self.expression(self.pick((1, 2, 3)))
        one = Index(self.let(one.text, "e"), one.least, one.most)
        self.leaves.append(one)
        return one

    def expression(self, depth: int) -> Index:
        if depth == 0 or self.chance(0.1):
            return self.pick(self.leaves)
        one = self.expression(depth - 1)
        step = self.pick(
            (
                self.sum,
                self.sum,
                self.sum,
                self.scaled,
                self.scaled,
                self.cut,
                self.cut,
                self.bits,
                self.chosen,
                self.wide,
            )
        )
        return self.kept(step(one, depth))

    def kept(self, one: Index) -> Index:
        if max(abs(one.least), abs(one.most)) < WIDEST // 256:
            return one
        by = self.pick((1000, 1024, 4096))
        return Index(f"(({one}) % {by})", -by + 1 if one.least < 0 else 0, by - 1)

    def sum(self, one: Index, depth: int) -> Index:
        other = self.expression(depth - 1)
        if self.chance(0.25):
            value = self.pick((1, 4, 8, 16, 3, 64))
            other = Index(str(value), value, value)
        if self.chance(0.25):
            return Index(f"({one} - {other})", one.least - other.most, one.most - other.least)
        return Index(f"({one} + {other})", one.least + other.least, one.most + other.most)

    def scaled(self, one: Index, depth: int) -> Index:
        value = self.pick((2, 3, 4, 8, 16, 24, -1, -8, self.shape[-1]))
        other = Index(str(value), value, value)
        if self.chance(0.4):
            other = self.pick(
                [leaf for leaf in self.ranges if abs(leaf.least) < 300 and abs(leaf.most) < 300]
            )
        ends = [a * b for a, b in itertools.product((one.least, one.most), (other.least, other.most))]
        return Index(f"({one}) * ({other})", min(ends), max(ends))

    def divisor(self) -> Index:
        positive = [leaf for leaf in self.leaves if leaf.least == leaf.most > 0]
        if positive and self.chance(0.5):
            return self.pick(positive)
        value = self.pick((2, 3, 4, 7, 8, 16, 32, 64, 100, self.shape[-1]))
        return Index(str(value), value, value)

    def cut(self, one: Index, depth: int) -> Index:
        """A quotient or a remainder, towards zero."""
        by = self.divisor()
        d = by.most
        kind = self.pick(("//", "%", "%", "cdiv", "unsigned", "both"))
        if kind in ("cdiv", "unsigned") and one.least < 0:
            kind = "//"
        if kind == "both":
            return Index(f"(({one}) // {by} * {by} + ({one}) % {by})", one.least, one.most)
        if kind == "cdiv":
            return Index(f"tl.cdiv({one}, {by})", -(-one.least // d), -(-one.most // d))
        if kind == "unsigned":
            return Index(
                f"(({one}).to(tl.uint32) // tl.cast({by}, tl.uint32)).to(tl.int32)",
                one.least // d,
                one.most // d,
            )
        if kind == "//":
            return Index(f"({one}) // {by}", int(one.least / d), int(one.most / d))
        return Index(
            f"({one}) % {by}", max(1 - d, one.least) if one.least < 0 else 0, max(0, min(d - 1, one.most))
        )

    def bits(self, one: Index, depth: int) -> Index:
        n = self.pick((1, 2, 3, 4, 6))
        kind = self.pick(("&", ">>", "<<", "^", "|", "&~"))
        if one.least < 0 and kind in "^|":
            kind = "&"
        if kind == "&":
            return Index(f"({one} & {2**n - 1})", 0, 2**n - 1)
        if kind == "&~":
            return Index(f"({one} & {-(2**n)})", one.least >> n << n, one.most)
        if kind == ">>":
            return Index(f"({one} >> {n})", one.least >> n, one.most >> n)
        if kind == "<<":
            return Index(f"({one} << {n})", one.least << n, one.most << n)
        return Index(f"({one} {kind} {self.pick((1, 2**n, 2**n - 1))})", 0, one.most | 2**n | (2**n - 1))

    def chosen(self, one: Index, depth: int) -> Index:
        other = self.expression(depth - 1)
        least, most = min(one.least, other.least), max(one.most, other.most)
        kind = self.pick(("minimum", "maximum", "where", "abs"))
        if kind == "where":
            return Index(f"tl.where({self.condition(depth - 1)}, {one}, {other})", least, most)
        if kind == "abs":
            return Index(f"tl.abs({one})", 0, max(abs(one.least), abs(one.most)))
        return Index(f"tl.{kind}({one}, {other})", least, most)

    def wide(self, one: Index, depth: int) -> Index:
        return Index(f"({one}).to(tl.int64)", one.least, one.most) if self.chance(0.5) else one

    def condition(self, depth: int = 1) -> str:
        one = self.expression(depth)
        bound = self.pick(
            (
                one.least,
                one.most,
                (one.least + one.most) // 2,
                int(self.rng.integers(one.least, one.most + 1)),
            )
        )
        bound = bound // 16 * 16 if self.chance(0.3) else bound
        other = str(bound) if self.chance(0.5) else str(self.expression(max(0, depth - 1)))
        if self.chance(0.3):
            name = self.fresh("n")
            self.scalars[name] = bound
            other = name
        return f"({one} {self.pick(('<', '<', '<', '<=', '>', '>=', '!=', '=='))} {other})"

    # -- accesses --------------------------------------------------------------------------------------

    def place(self) -> tuple[Index, str]:
        """Where an access goes, at least 0; and the mask that keeps it inside of as many elements as the
        largest one asks for."""
        one = self.expression(self.pick((1, 2, 2, 3)))
        if self.chance(0.4):
            one = Index(f"({self.linear_text()} + {one})", one.least, one.most + self.grid * self.size - 1)
        elif self.chance(0.5):
            one = Index(f"({one} + {self.linear_text(1)})", one.least, one.most + self.size - 1)
        if one.most - one.least >= LIMIT:
            by = self.pick((512, 1000, 2048))
            one = Index(f"(({one}) % {by})", 1 - by if one.least < 0 else 0, by - 1)
        masks = [self.condition() for _ in range(self.pick((0, 0, 1, 2)))]
        low = one.least if one.least < 0 else 0
        low = low // 16 * 16 if self.chance(0.5) else low
        if low:
            one = Index(
                f"({one} - {low})" if low > 0 else f"({one} + {-low})", one.least - low, one.most - low
            )
        if self.chance(0.3):
            one = Index(self.let(one.text, "e"), one.least, one.most)
        if self.chance(0.3):
            end = int(self.rng.integers(one.least, one.most + 2))
            end = max(1, end // 16 * 16 if self.chance(0.5) else end)
            masks.append(f"({one} < {self.number(self.fresh('n'), end)})")
            one = attrs.evolve(one, most=end - 1)
        return one, " & ".join(masks)

    def linear_text(self, grid: int = 0) -> str:
        """The place of each element in a row, the tiles of programs one behind the other."""
        text = "ijh"[: len(self.shape)][-1]
        stride = self.shape[-1]
        for axis in range(len(self.shape) - 2, -1, -1):
            text = f"{'ijh'[axis]} * {stride} + {text}"
            stride *= self.shape[axis]
        return f"({text})" if grid == 1 else f"(pid * {stride} + {text})"

    def data(self, count: int) -> str:
        kind = self.pick(KINDS)
        return self.keep("x", self.numbers(kind, count))

    def numbers(self, kind: str, count: int) -> np.ndarray:
        low = 0 if kind.startswith("u") else -100
        return self.rng.integers(low, 101, count).astype(numpy_type(kind))

    def load(self) -> str:
        """A variable with a tile that is loaded, as int32."""
        one, mask = self.place()
        name = self.data(one.most + 1)
        other = self.pick(("", ", other=0", f", other={self.pick((1, 7, 100))}"))
        access = f"{name} + ({one} + tl.zeros({self.shape}, tl.int32))" if mask else f"{name} + {one}"
        policy = self.pick(
            ("", "", "", ", eviction_policy='evict_first'", ", cache_modifier='.cg'", ", volatile=True")
        )
        text = (
            f"tl.load({access}, mask={mask}{other or ', other=3'}{policy})"
            if mask
            else f"tl.load({access}{policy})"
        )
        return self.let(f"({text}).to(tl.int32)", "l")

    def access(self) -> None:
        kind = self.pick(("load", "load", "load", "index", "atomic", "store", "value"))
        if kind == "load":
            self.emit(f"acc = acc * 3 + {self.load()}")
        elif kind == "value":
            self.emit(f"acc = acc * 5 - ({self.expression(2)}).to(tl.int32)")
        elif kind == "index":
            name = self.let(f"({self.load()} & 15)", "e")
            self.leaves.append(Index(name, 0, 15))
        elif kind == "atomic":
            one, mask = self.place()
            out = self.keep("o", np.zeros(one.most + 1, np.int32))
            place = f"{one} + tl.zeros({self.shape}, tl.int32)"
            how, value = self.pick(
                (("add", "acc"), ("max", "acc"), ("min", "acc"), ("xor", "acc"), ("add", "1"))
            )
            value = "tl.full(acc.shape, 1, tl.int32)" if value == "1" else value
            self.emit(f"tl.atomic_{how}({out} + ({place}), {value}{f', mask={mask}' if mask else ''})")
        else:
            self.store("acc")

    def own(self) -> tuple[str, int]:
        """A place of its own for each element of each program, and how many there are."""
        tile, total = self.size, self.size * self.grid
        kind = self.pick(("rows", "rows", "turned", "xor", "stride", "spread", "back"))
        if kind == "turned":
            text = "ijh"[0]
            stride = self.shape[0]
            for axis in range(1, len(self.shape)):
                text += f" + {'ijh'[axis]} * {stride}"
                stride *= self.shape[axis]
            return f"(pid * {tile} + {text})", total
        if kind == "xor":
            return f"({self.linear_text()} ^ {int(self.rng.integers(0, tile))})", total
        if kind == "stride":
            by = self.pick((2, 3, 4))
            return f"({self.linear_text()} * {by} + {by - 1})", total * by
        if kind == "spread":
            return f"({self.linear_text(1)} * {self.grid} + pid)", total
        if kind == "back":
            return f"({total - 1} - {self.linear_text()})", total
        return self.linear_text(), total

    def store(self, value: str) -> None:
        place, count = self.own()
        mask = f", mask={self.condition()}" if self.chance(0.4) else ""
        kind = self.pick(("int32", "int32", "int8", "int16", "int64", "float32"))
        if kind == "float32":
            value = f"({value} & 0xFFFF).to(tl.float32)"
        out = self.keep("o", np.zeros(count, np.dtype(kind)))
        self.emit(f"tl.store({out} + {place}, {value}{mask})")

    def update(self) -> None:
        """A tile that is changed where it lies."""
        place, count = self.own()
        out = self.keep("o", self.numbers("int32", count))
        mask = f", mask={self.condition()}" if self.chance(0.5) else ""
        at = self.let(place, "e")
        self.emit(
            f"changed = tl.load({out} + {at}{mask}{', other=0' if mask else ''}) * 2 + acc",
            f"tl.store({out} + {at}, changed{mask})",
        )

    # -- control flow ----------------------------------------------------------------------------------

    def block(self, counter: Index | None) -> None:
        """The body of a loop or a branch, in which ``counter`` is one more leaf."""
        before, ranges = list(self.leaves), list(self.ranges)
        if counter is not None:
            self.leaves += [counter] * 3
            self.ranges += [counter] * 2
        self.indent += 1
        for _ in range(self.pick((1, 2))):
            self.pick((self.access, self.access, self.index, self.branch, self.update))()
        self.emit(f"acc = acc + {self.load()}")
        self.indent -= 1
        self.leaves, self.ranges = before, ranges

    def loop(self) -> None:
        counter = self.fresh("k")
        first, count, step = (
            self.pick((0, 0, 0, 1, 5)),
            self.pick((0, 1, 2, 3, 4)),
            self.pick((1, 1, 2, 16, 32)),
        )
        end = first + max(0, count * step - self.pick((0, 0, 1)))
        last = first + max(0, -(-(end - first) // step) - 1) * step
        advice = self.pick(
            ("", "", ", num_stages=3", ", num_stages=2", ", loop_unroll_factor=2", ", flatten=True")
        )
        end = self.number(self.fresh("n"), end)
        self.emit(f"for {counter} in tl.range({first}, {end}, {step}{advice}):")
        self.block(Index(counter, first, last))

    def branch(self) -> None:
        if self.indent > 2:
            return self.access()
        value = self.pick([leaf for leaf in self.leaves if leaf.text[0] in "pabck"])
        self.emit(f"if {value} {self.pick(('<', '==', '>'))} {self.pick((value.least, value.most))}:")
        self.block(None)
