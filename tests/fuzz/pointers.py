"""Random pointers: moved, chosen, exchanged and carried by loops, made of integers and again of those,
scalars and tiles; through which memory is read and written in turns, so that loads must not pass stores;
atomics whose results are used. Each program writes to a part of its own, and a barrier stands wherever
other threads' elements may be read.
"""

from __future__ import annotations

import attrs

from tests.fuzz.draw import LaunchedProgram, numpy_type
from tests.fuzz.places import Index, Places

SIZE = 2048
"""Elements of a buffer; pointers lead to its first half, indices reach as far as the other half is long."""
READ = ("int32", "float32", "float16", "int8", "int64", "uint8", "bfloat16")
ORDERS = (
    "",
    "",
    ", sem='relaxed'",
    ", sem='acquire'",
    ", sem='release', scope='gpu'",
    ", scope='cta'",
    ", scope='sys'",
)


@attrs.frozen
class Pointer:
    """A variable that points at an element from ``least`` to ``most`` of a buffer, ``written`` or not."""

    name: str
    least: int
    most: int
    written: bool


def generate(seed: int) -> LaunchedProgram:
    """The program of a seed."""
    return _Pointers(seed).program()


class _Pointers(Places):
    def __init__(self, seed: int):
        super().__init__(seed, 80)
        self.pool: list[Pointer] = []

    def program(self) -> LaunchedProgram:
        self.begin()
        self.emit(f"acc = {self.linear_text()}")
        self.kind = self.pick(READ)
        self.written = self.pick(("int32", "int32", "int64"))
        for _ in range(self.pick((1, 2))):
            data = self.rng.integers(0, 100, SIZE).astype(numpy_type(self.kind))
            self.pool.append(Pointer(self.keep("x", data), 0, 0, False))
        for _ in range(self.pick((1, 2))):
            name = self.keep("o", self.rng.integers(-9, 10, SIZE * self.grid).astype(self.written))
            self.pool.append(Pointer(self.let(f"{name} + pid * {SIZE}", "p"), 0, 0, True))
        if self.chance(0.15):
            self.emit(f"if pid == {self.pick((0, 1))} + {self.scalar()}:", "    return")
        for _ in range(self.pick((3, 5, 7))):
            self.step()
        return self.end("pointer")

    def step(self) -> None:
        steps = [
            self.move,
            self.choose,
            self.choose,
            self.read,
            self.read,
            self.write,
            self.write,
            self.change,
            self.index,
        ]
        if self.indent < 3:
            steps += [self.walk, self.walk, self.part]
        self.pick(steps)()

    # -- pointers --------------------------------------------------------------------------------------

    def pointer(self, written: bool | None = None) -> Pointer:
        return self.pick([p for p in self.pool if written is None or p.written == written])

    def scalar(self) -> str:
        """A number that is the same for all elements."""
        return self.pick([leaf.text for leaf in self.leaves if leaf.text[0] in "pabck"])

    def test(self) -> str:
        return f"({self.scalar()} + {self.pick((0, 1))}) % {self.pick((2, 3))} == {self.pick((0, 1))}"

    def move(self) -> None:
        one, step = self.pointer(), self.pick((1, 4, 16, 100, 128))
        if one.most + step >= SIZE // 2:
            return
        size = step * self.bytes(one)
        text = self.pick((f"{one.name} + {step}", f"{one.name} + {step}", f"{one.name} - (-{step})",
                          f"({one.name}.to(tl.int64) + {size}).to({one.name}.dtype)"))  # fmt: skip
        self.pool.append(Pointer(self.let(text, "p"), one.least + step, one.most + step, one.written))

    def bytes(self, one: Pointer) -> int:
        return numpy_type(self.written if one.written else self.kind).itemsize

    def choose(self) -> None:
        """One of two, by a condition."""
        one = self.pointer()
        other = self.pointer(one.written)
        name = self.fresh("p")
        if self.chance(0.5):
            self.emit(f"{name} = {one.name} if {self.test()} else {other.name}")
        elif self.chance(0.5):
            self.emit(f"{name} = tl.where({self.test()}, {one.name}, {other.name})")
        else:
            self.emit(f"{name} = {one.name}", f"if {self.test()}:", f"    {name} = {other.name}")
        self.pool.append(Pointer(name, min(one.least, other.least), max(one.most, other.most), one.written))

    # -- accesses --------------------------------------------------------------------------------------

    def reach(self) -> str:
        """An index of each element, at most half of a buffer."""
        if self.chance(0.5):
            return self.linear_text(1)
        one = self.expression(2)
        return f"(({one} + {self.linear_text(1)}) & {self.pick((255, 511, 1023))}).to(tl.int32)"

    def tile(self, one: Pointer) -> str:
        text = f"{one.name} + {self.reach()}"
        if len(self.shape) == 2 and self.chance(0.3):
            text = f"({one.name} + i * {self.shape[1]}) + j"
        if self.chance(0.25):
            other = self.pointer(one.written)
            text = f"tl.where({self.condition()}, {text}, {other.name} + {self.reach()})"
        if len(self.shape) == 2 and self.chance(0.2):
            text = f"tl.trans(tl.trans({text}))"
        if self.chance(0.15):
            text = f"({text}).to(tl.int64).to({one.name}.dtype)"
        return self.let(text, "t") if self.chance(0.5) else text

    def mask(self, share: float) -> str:
        """The argument that keeps an access from some elements, in a ``share`` of the cases."""
        return f", mask=tl.broadcast_to({self.condition()}, {self.shape})" if self.chance(share) else ""

    def read(self) -> None:
        one = self.pointer()
        if self.chance(0.2):
            self.emit(f"acc += tl.load({one.name}).to(tl.int32)")
            return
        mask = self.mask(0.4)
        mask = f"{mask}, other={self.pick((0, 1))}" if mask else ""
        self.emit(f"acc = acc * 3 + tl.load({self.tile(one)}{mask}).to(tl.int32)")

    def write(self) -> None:
        """A store or an atomic; other threads may have read, and may read, what it changes."""
        one = self.pointer(True)
        place = self.pick(
            (
                self.linear_text(1),
                f"({self.linear_text(1)} ^ {int(self.rng.integers(self.size))})",
                f"({self.size - 1} - {self.linear_text(1)})",
            )
        )
        mask = self.mask(0.3)
        where, value = f"{one.name} + {place}", f"(acc & 0xFFFF).to(tl.{self.written})"
        self.emit("tl.debug_barrier()")
        how = self.pick(("store", "store", "store", "atomic", "cas", "add"))
        if how == "store":
            self.emit(f"tl.store({where}, {value}{mask})")
        elif how == "atomic":
            name = self.pick(("add", "max", "min", "and", "or", "xor", "xchg"))
            old = f"tl.atomic_{name}({where}, {value}{mask}{self.pick(ORDERS)})"
            self.emit(
                f"acc += tl.where({mask[7:]}, {old}, 0).to(tl.int32)"
                if mask
                else f"acc += {old}.to(tl.int32)"
            )
        elif how == "cas":
            expected = f"tl.full({self.shape}, {self.pick((0, 3))}, tl.{self.written})"
            self.emit(f"acc += tl.atomic_cas({where}, {expected}, {value}{self.pick(ORDERS)}).to(tl.int32)")
        else:
            at = self.let(where, "t")
            self.emit(f"tl.store({at}, tl.load({at}) * 2 + 1)")
        self.emit("tl.debug_barrier()")

    def change(self) -> None:
        """A number that is alone in its place, changed by an atomic whose result is used."""
        one = self.pointer(True)
        name, value = self.pick(("add", "max", "xchg", "cas")), f"{self.scalar()} + 1"
        arguments = (
            f"tl.cast(0, tl.{self.written}), tl.cast({value}, tl.{self.written})" if name == "cas" else value
        )
        self.emit(
            "tl.debug_barrier()",
            f"old = tl.atomic_{name}({one.name} + {self.pick((0, 5))}, {arguments}{self.pick(ORDERS)})",
            "acc += old.to(tl.int32)",
            "tl.debug_barrier()",
        )

    # -- control flow ----------------------------------------------------------------------------------

    def walk(self) -> None:
        """A loop that carries two pointers, which move, or are exchanged."""
        one = self.pointer()
        other = self.pointer(one.written)
        trips, step, end = self.pick((0, 1, 2, 3, 4)), self.pick((0, 1, 16, 32)), max(one.most, other.most)
        if end + trips * step * 2 >= SIZE // 2:
            return
        p, q, k = self.fresh("p"), self.fresh("p"), self.fresh("k")
        self.emit(f"{p}, {q} = {one.name}, {other.name}")
        advice = self.pick(("", "", ", num_stages=3", ", num_stages=4", ", loop_unroll_factor=2"))
        if self.chance(0.2):
            self.emit(f"{k} = 0", f"while {k} < {self.number(self.fresh('n'), trips)}:")
            advice = ""
        else:
            self.emit(f"for {k} in tl.range(0, {self.number(self.fresh('n'), trips)}{advice}):")
        is_while = self.lines[-1].lstrip().startswith("while")
        before, leaves, ranges = list(self.pool), list(self.leaves), list(self.ranges)
        least, most = min(one.least, other.least), end + trips * step * 2
        self.pool += [Pointer(p, least, most, one.written), Pointer(q, least, most, one.written)] * 2
        self.leaves.append(Index(k, 0, max(0, trips - 1)))
        self.indent += 1
        for _ in range(self.pick((2, 3, 4))):
            self.step()
        changes = (
            f"{p} += {step}",
            f"{p}, {q} = {q}, {p}",
            f"{p}, {q} = {q}, {p} + {step}",
            f"{q} += {step} * 2",
            f"{q} = {p}",
        )
        self.emit(*(changes[n] for n in sorted(self.rng.choice(len(changes), 2, False))))
        if is_while:
            self.emit(f"{k} += 1")
        self.indent -= 1
        self.pool, self.leaves, self.ranges = before, leaves, ranges
        if 2 * most < SIZE:
            self.pool += [Pointer(p, least, min(most * 2, SIZE // 2 - 1), one.written)]

    def part(self) -> None:
        """Steps in a branch."""
        before, leaves, ranges = list(self.pool), list(self.leaves), list(self.ranges)
        self.emit(f"if {self.test()}:")
        self.indent += 1
        for _ in range(self.pick((1, 2))):
            self.step()
        self.emit("acc += 1")
        self.indent -= 1
        self.pool, self.leaves, self.ranges = before, leaves, ranges
